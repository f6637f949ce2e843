"""Users' layers through type "Python"."""

from __future__ import annotations

import os

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.python import SHARD, UserBlob
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


@pytest.mark.parametrize(("layer", "n_ranks", "phase", "asks", "n_warnings"), [
    ("Source", 2, TRAIN, False, 1), ("Source", 2, TRAIN, True, 0), ("Source", 1, TRAIN, False, 0),
    ("Source", 2, TEST, False, 0), ("Scale", 2, TRAIN, False, 0)])
def test_a_data_layer_that_does_not_ask_for_its_part_is_named_once(monkeypatch, capfd, layer, n_ranks, phase, asks,
                                                                   n_warnings) -> None:
    monkeypatch.setattr(SHARD, "is_asked", asks)
    rig = Rig(text(layer, "1"), [] if layer == "Source" else [IMAGE], n_tops=1, phase=phase)
    rig.layer.context.n_ranks = n_ranks
    for _ in range(3):
        rig.forward()
    lines = [line for line in capfd.readouterr().err.splitlines() if "caffe.solver_rank()" in line]
    assert len(lines) == n_warnings
    assert all(f"on each of {n_ranks} ranks" in line for line in lines)


def test_layers_are_told_their_nets_part_of_the_data(monkeypatch) -> None:
    """Each net's own, in every call; what the user gave stands on one rank."""
    import scaffe as caffe

    monkeypatch.setattr(SHARD, "part", None)
    monkeypatch.setattr(SHARD, "_is_given", False)
    rigs = [Rig(text("Source"), [], n_tops=1) for _ in range(2)]
    for rig, shard in zip(rigs, [(1, 3), (0, 2)], strict=True):
        rig.layer.context.shard = shard
    for _ in range(2):
        for rig, (number, count) in zip(rigs, [(1, 3), (0, 2)], strict=True):
            rig.forward()
            assert (caffe.solver_rank(), caffe.solver_count()) == (number, count)
    SHARD.part = None
    assert (caffe.solver_rank(), caffe.solver_count()) == (0, 1)
    caffe.set_solver_count(4), caffe.set_solver_rank(3)
    rigs[0].layer.context.shard = (0, 1)
    rigs[0].forward()
    assert (caffe.solver_rank(), caffe.solver_count()) == (3, 4)


def test_a_child_that_a_layer_forks_may_exit() -> None:
    rig = Rig(text("Forks"), [], n_tops=1)
    try:
        rig.forward()
    except SystemExit as left:  # in the child
        os._exit(left.code)
    assert rig.layer.user.status == 3
