"""Whether float32 products are computed in full precision or with TF32 on tensor cores."""

from __future__ import annotations


class Precision:
    """The setting of ``-tf32``, read when plans are built.

    Attributes:
        tf32: factors of float32 products may be rounded to 10 bits of mantissa (sums stay float32).
    """

    tf32 = False


precision = Precision()
