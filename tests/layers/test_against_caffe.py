"""Every layer of BVLC Caffe against Caffe's own numbers: parameters bit for bit, the rest to float32's precision."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.rig import Rig
from tests.reference.caffe import Recorded, recorded, top_diff

RUNS = recorded()
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_same_as_caffe(run: Recorded) -> None:
    rig = Rig(run.prototxt, run.inputs, len(run.tops), run.in_place, run.phase, np.float32)
    assert [b.shape for b in rig.layer.blobs] == [b.shape for b in run.blobs]
    for blob, expected in zip(rig.layer.blobs, run.blobs, strict=True):
        np.testing.assert_array_equal(blob.data, expected)
    for got, expected in zip(rig.forward(), run.tops, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, **CLOSE)
    if run.propagate_down is not None:
        diffs = [top_diff(blob.shape, i) for i, blob in enumerate(rig.top)]
        bottoms, params = rig.backward(diffs, run.propagate_down)
        for got, expected in zip((*bottoms, *params), (*run.bottom_diffs, *run.blob_diffs), strict=True):
            if expected is not None:
                np.testing.assert_allclose(got, expected, **CLOSE)
