"""How plans compute: whether float32 products may round to TF32 on tensor cores, and in how much memory."""

from __future__ import annotations

MOST_WORKSPACE_BYTES = 1 << 30
LITTLE_WORKSPACE_BYTES = 64 << 20  # eight times Caffe's (cudnn_conv_layer.cu)


class Precision:
    """The settings of ``-tf32`` and ``-memory``, read when plans are built.

    Attributes:
        tf32: factors of float32 products may be rounded to 10 bits of mantissa (sums stay float32).
        workspace_bytes: what a convolution may work in, where a plan of cuDNN's does with as much.
    """

    tf32 = False
    workspace_bytes = MOST_WORKSPACE_BYTES

    @property
    def saves_memory(self) -> bool:
        """Whether convolutions work in less than they might."""
        return self.workspace_bytes < MOST_WORKSPACE_BYTES


precision = Precision()
