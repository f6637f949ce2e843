"""How float32 products are made: whole, or with TF32's shorter factors on tensor cores."""

from __future__ import annotations


class Precision:
    """What ``-tf32`` sets, before plans are built.

    Attributes:
        tf32: factors of float32 products may be rounded to 10 bits of mantissa (sums stay float32).
    """

    tf32 = False


precision = Precision()
