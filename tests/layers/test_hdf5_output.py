"""HDF5Output: what another program reads back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.full_disk import full_disk
from tests.layers.rig import Rig, spread

h5py = pytest.importorskip("h5py")


def rig(path: Path, *inputs: np.ndarray) -> Rig:
    """The layer that writes to a path."""
    return Rig(f'type: "HDF5Output" hdf5_output_param {{ file_name: "{path}" }}', list(inputs), dtype=np.float32)


def test_batches_are_appended_in_caffes_order(tmp_path: Path) -> None:
    image, label = spread((2, 3, 4, 5)), np.array([4, 7.0])
    layer = rig(tmp_path / "out.h5", image, label)
    layer.forward()
    layer.feed(image[:1], label[:1])
    layer.layer.close()
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["data"][:], np.concatenate([image, image[:1]]).astype(np.float32))
        np.testing.assert_array_equal(file["label"][:], np.reshape([4, 7, 4], (3, 1, 1, 1)))


@pytest.mark.parametrize("limit", [0, 50, 800, 3000, 5000, 20000])
def test_a_file_that_cannot_grow(tmp_path: Path, limit: int) -> None:
    """HDF5's library crashes where writes fail, at the latest when it closes the file."""
    with full_disk(limit):
        layer = rig(tmp_path / "out.h5", np.zeros((2, 3000)), np.zeros(2))
        with pytest.raises(LayerError, match="out.h5' cannot be written: file too large"):
            for _ in range(3):
                layer.forward()
        layer.layer.close()
    assert (tmp_path / "out.h5").stat().st_size <= limit


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(LayerError, match="cannot be written: no such file"):
        rig(tmp_path / "no" / "out.h5", np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(LayerError, match="batch size"):
        rig(tmp_path / "out.h5", np.zeros((2, 3)), np.zeros(3))
    layer = rig(tmp_path / "out2.h5", np.zeros((2, 3)), np.zeros(2))
    layer.forward()
    with pytest.raises(LayerError, match="are now"):
        layer.feed(np.zeros((2, 4)), np.zeros(2))
