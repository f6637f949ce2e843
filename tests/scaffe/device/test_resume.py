"""A run on a device that draws masks and goes on from its snapshot ends with the same bits. Pretend CuPy, or a card."""

import os

import numpy as np
import pytest

from scaffe.files import read_state
from scaffe.layers.kernels import cuda, device
from scaffe.training import loss_scale
from tests import pretend
from tests.scaffe.masked import build, saved, state, train_on, went_on

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
pytestmark = pytest.mark.skipif(bool(device.missing()), reason=device.missing()) if REAL else pretend.needs_compiler
OTHER_DRAWS = "go on with other draws"


@pytest.fixture
def on_device(monkeypatch):
    """The pretend CuPy is there, or the real one."""
    if not REAL:
        pretend.install(monkeypatch)


@pytest.mark.parametrize(("records", "form"), [(True, "BINARYPROTO"), (False, "HDF5")], ids=["recorded", "plain"])
def test_masks_go_on_behind_a_snapshot(tmp_path, on_device, monkeypatch, records, form):
    monkeypatch.setattr(cuda, "RECORDS", records)
    through = build(tmp_path, form=form)
    path = saved(through)
    train_on(through)
    if records:
        made = through.strategy.passes._recordings
        assert ("forward", 1) in made
        assert all(hasattr(recording.args[0], "result") for recording in made.values())
    expected = state(through)
    resumed = build(tmp_path, form=form)
    again = went_on(resumed, path)
    twice = went_on(resumed, path)  # into numbers that are in use, and in recordings
    for want, got, more in zip(expected, again, twice, strict=True):
        assert want.tobytes() == got.tobytes() == more.tobytes()


@pytest.mark.filterwarnings("ignore:invalid value")  # what overflowed goes on through the net
@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_the_factor_on_the_loss_goes_on_behind_a_snapshot(tmp_path, on_device, monkeypatch, form):
    monkeypatch.setattr(loss_scale, "FIRST", 2.0**22)  # too large: halved until gradients fit
    through = build(tmp_path, form=form, precision="fp16")
    path = saved(through)
    found = read_state(path).loss_scale
    assert found == float(through.net.nodes[-1].loss_scale) < 2**22
    weights = state(through)[0]
    train_on(through)
    assert (state(through)[0] != weights).any()
    for want, got in zip(state(through), went_on(build(tmp_path, form=form, precision="fp16"), path), strict=True):
        assert want.tobytes() == got.tobytes()


@pytest.mark.parametrize(("first", "second"), [("0", ""), ("", "0")], ids=["to_the_cpu", "to_the_device"])
def test_another_kind_of_machine_goes_on_with_draws_of_its_own(tmp_path, on_device, capfd, first, second):
    path = saved(build(tmp_path, first))
    capfd.readouterr()
    runs = [went_on(build(tmp_path, second), path) for _ in range(2)]
    assert capfd.readouterr().err.count(OTHER_DRAWS) == 2
    for one, other in zip(*runs, strict=True):
        assert np.isfinite(one).all()
        assert one.tobytes() == other.tobytes()
    went_on(build(tmp_path, first), path)
    assert OTHER_DRAWS not in capfd.readouterr().err
