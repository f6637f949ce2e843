"""Copies between strided views: which are rows of whole columns, and that every copy is NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda.copies import as_rows, copy_part
from tests.layers.cuda.rig import double, every_dtype, numbers

CASES = {  # whole shape in storage order, the part, and the rows that it makes
    "channels of an image": ((2, 3, 4, 24), np.s_[..., 8:16], (24, 8)),
    "odd channels": ((2, 3, 4, 7), np.s_[..., 2:5], (24, 3)),
    "one channel": ((2, 3, 4, 7), np.s_[..., 3:4], (24, 1)),
    "rows of an image": ((2, 5, 4, 8), np.s_[:, 1:3], (2, 64)),
    "images": ((4, 3, 2, 8), np.s_[1:3], (1, 96)),
    "all": ((2, 3, 4, 8), np.s_[...], (1, 192)),
    "a corner": ((2, 5, 6, 8), np.s_[:, 1:3, 2:4], None),
    "an element": ((1, 1, 1, 1), np.s_[...], (1, 1)),
}


@pytest.mark.parametrize(("shape", "part", "rows"), CASES.values(), ids=CASES)
def test_views_as_rows(shape: tuple, part: Any, rows: tuple | None) -> None:
    whole = np.zeros(shape, np.float32)
    own = np.zeros(whole[part].shape, np.float32)
    moved = np.moveaxis(whole[part], -1, 1), np.moveaxis(own, -1, 1)  # Caffe's order of the same memory
    for one, other in ((whole[part], own), moved):
        found = as_rows(one.shape, one.strides, other.strides, 4)
        assert (found and found[:2]) == rows


def test_the_stream_that_was_chosen_stays_chosen(cp: Any) -> None:
    """Where an array's order is another one than the host's, which CuPy computes within `with stream`."""
    before, chosen = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    values = numbers((2, 3, 4, 8), np.dtype(np.float32), 0)
    on_device = cp.moveaxis(cp.asarray(values), -1, 1)
    before.synchronize()
    chosen.use()
    try:
        found = cuda.to_host(on_device)
        assert cp.cuda.get_current_stream().ptr == chosen.ptr
    finally:
        before.use()
    np.testing.assert_array_equal(found, np.moveaxis(values, -1, 1))


@every_dtype
@pytest.mark.parametrize(("shape", "part", "rows"), CASES.values(), ids=CASES)
def test_parts_are_copied_there_and_back(cp: Any, shape: tuple, part: Any, rows: tuple | None, dtype: np.dtype) -> None:
    whole = numbers(shape, dtype, 0)
    source = numbers(whole[part].shape, dtype, 1)
    on_whole, on_source = cp.asarray(whole), cp.asarray(source)
    copy_part(np.moveaxis(on_whole[part], -1, 1), np.moveaxis(on_source, -1, 1))
    whole[part] = source
    np.testing.assert_array_equal(double(on_whole.get()), double(whole))
    back = cp.empty(source.shape, dtype)
    copy_part(back, on_whole[part])
    np.testing.assert_array_equal(double(back.get()), double(source))


def test_another_type_or_nothing_at_all(cp: Any) -> None:
    target = cp.zeros((2, 3), np.float64)
    copy_part(target, cp.ones((2, 3), np.float32))
    assert float(target.sum()) == 6
    copy_part(cp.zeros((0, 3), np.float32), cp.zeros((0, 3), np.float32))
