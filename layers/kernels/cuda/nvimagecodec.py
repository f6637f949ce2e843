"""JPEG files decoded on the device by NVIDIA's nvImageCodec, 0.9 and later (nvidia-nvimgcodec-cu12 and -cu13).

It gives them to the card's JPEG engine where there is one, else to nvJPEG's kernels. Pixels differ in the last places
from libjpeg's, which rounds elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels import device

Decode = Callable[[Sequence[np.ndarray], Any], Sequence[Any]]
"""(JPEG files, uint8, 1-D; stream) -> for each file its image, uint8 (height, width, 3), blue first, on the current
device in order behind the stream; or None. An image has ``__cuda_array_interface__``, and its memory lasts as long."""

INSTALL = "pip install 'nvidia-nvimgcodec-cu12[nvjpeg]>=0.9', or -cu13, as the driver has it"
THREADS = 1  # of a decoder's own: each reader thread has a decoder
LIKE_LIBJPEG = ":fancy_upsampling=1"  # colours between samples are interpolated


def maker() -> Callable[[], Decode]:
    """The function that makes a thread's decoder for the current device. Raises LayerError if there is none."""
    module = _module()
    return lambda: NvImageCodec(module)


def _module() -> ModuleType:
    os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")  # else it tells of every damaged file, too
    try:
        found = import_module("nvidia.nvimgcodec")
    except ImportError as error:
        raise LayerError(f"nvidia.nvimgcodec cannot be imported ({device.first_line(error)}): {INSTALL}") from None
    if not hasattr(found, "SampleFormat"):
        raise LayerError(f"nvidia.nvimgcodec {getattr(found, '__version__', '')} is older than 0.9: {INSTALL}")
    return found


class NvImageCodec:
    """A thread's decoder.

    Args:
        module: ``nvidia.nvimgcodec``.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        kinds = module.BackendKind
        backends = [module.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)]
        self._decoder = module.Decoder(device_id=device.current(), max_num_cpu_threads=THREADS, backends=backends,
                                       options=LIKE_LIBJPEG)
        self._params = module.DecodeParams(apply_exif_orientation=False, color_spec=module.ColorSpec.SRGB,
                                           sample_format=module.SampleFormat.I_BGR)

    def __call__(self, files: Sequence[np.ndarray], stream: Any) -> Sequence[Any]:
        """The files' images (``Decode``)."""
        streams = [self._module.CodeStream(file) for file in files]
        images: Sequence[Any] = self._decoder.decode(streams, params=self._params, cuda_stream=stream.ptr)
        return images
