"""What is stored of one layer of a trained net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class StoredLayer:
    """One layer on its way to a file.

    Attributes:
        param: the LayerParameter, without blobs.
        blobs: the parameters' values in Caffe's order.
        diffs: their diffs, where the file keeps them (``snapshot_diff``); else none.
        shared: indices of blobs that another layer owns: HDF5 files leave their values out, as Caffe's do.
    """

    param: Any
    blobs: Sequence[np.ndarray] = ()
    diffs: Sequence[np.ndarray] = ()
    shared: frozenset[int] = frozenset()
