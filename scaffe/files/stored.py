"""The part of a layer that is stored in a file of trained weights."""

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
        diffs: their diffs if the file is to keep them (``snapshot_diff``); else empty.
        shared: indices of blobs that another layer owns: HDF5 files leave their values out, as Caffe's do.
    """

    param: Any
    blobs: Sequence[np.ndarray] = ()
    diffs: Sequence[np.ndarray] = ()
    shared: frozenset[int] = frozenset()
