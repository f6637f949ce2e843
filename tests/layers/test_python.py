"""Users' layers through type "Python"."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import TEST
from scaffe.layers.python import UserBlob
from tests.layers.gradient_check import Case, check_exhaustive
from tests.layers.rig import Rig, spread

IMAGE = spread((2, 3, 2, 2))


def text(layer: str, param_str: str = "", module: str = "tests.layers.user_layers") -> str:
    """A Python layer's prototxt."""
    return f'type: "Python" python_param {{ module: "{module}" layer: "{layer}" param_str: "{param_str}" }}'


def test_a_layer_with_a_parameter() -> None:
    rig = Rig(text("Scale", "2.5"), [IMAGE], n_tops=1, phase=TEST)
    assert rig.layer.blobs[0].shape == (3,)
    assert (rig.layer.user.phase, rig.layer.user.param_str) == (TEST, "2.5")
    np.testing.assert_array_equal(rig.forward()[0], 2.5 * IMAGE)
    check_exhaustive(Case(text("Scale", "2.5"), (IMAGE,), n_tops=1))


def test_a_layer_of_py_faster_rcnns_kind() -> None:
    rig = Rig(text("Choose", "'feat_stride': 16"), [IMAGE], n_tops=1, phase=TEST)
    assert rig.layer.user.said == ("'feat_stride': 16", "TEST")
    top = rig.forward()[0]
    np.testing.assert_array_equal(top, IMAGE[IMAGE.sum(axis=(1, 2, 3)) > 0])
    rig.put(rig.bottom[0].diff, 7)
    bottoms, _ = rig.backward([top])
    assert not bottoms[0].any()


def test_blobs_look_like_caffes() -> None:
    rig = Rig(text("Scale", "1"), [IMAGE], n_tops=1)
    blob = UserBlob(rig.bottom[0])
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (2, 3, 2, 2, 24)
    blob.reshape(5, 4)
    assert (blob.shape, blob.height, rig.bottom[0].shape) == ((5, 4), 1, (5, 4))


def test_errors() -> None:
    with pytest.raises(LayerError, match="PYTHONPATH"):
        Rig(text("Half", module="no_such_module"), [IMAGE], n_tops=1)
    with pytest.raises(LayerError, match="no 'Quarter'"):
        Rig(text("Quarter"), [IMAGE], n_tops=1)
    with pytest.raises(RuntimeError, match="two inputs"):
        Rig(text("Half"), [IMAGE], n_tops=1)
