"""What joins GPUs, on described machines."""

import pytest

from scaffe.collectives.cuda import setup
from scaffe.collectives.tuning.device_choice import HOST, NVLINK, ONE_CARD, PCI_EXPRESS, Links
from tests import pretend

CARDS = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]


@pytest.fixture
def cp(monkeypatch):
    return pretend.install(monkeypatch, n_devices=3)


def described(cp, monkeypatch, peers, with_atomics):
    """A machine whose GPUs 0 and n can access one another, and have atomics for one another, for these n."""
    monkeypatch.setattr(cp.cuda.runtime, "deviceCanAccessPeer", lambda a, b: int(b in peers))
    asked = lambda attribute, a, b: int(attribute == 3 and b in with_atomics)  # noqa: E731
    monkeypatch.setattr(setup, "_p2p_attribute", lambda: asked)


@pytest.mark.parametrize(("cards", "peers", "with_atomics", "within"), [
    (CARDS[:1] * 4, (), (), ONE_CARD), (CARDS, (1, 2), (1, 2), NVLINK), (CARDS, (1, 2), (1,), PCI_EXPRESS),
    (CARDS, (1,), (1,), HOST), (CARDS[:2] * 2, (1,), (1,), NVLINK), (CARDS[:2], (1,), (), PCI_EXPRESS)])
def test_the_worst_of_a_nodes_links_counts(cp, monkeypatch, tmp_path, cards, peers, with_atomics, within):
    described(cp, monkeypatch, peers, with_atomics)
    assert setup.links_of(0, cards, tmp_path) == Links(within, 0)


def test_a_gpu_that_this_process_does_not_see_is_reached_through_the_host(cp, monkeypatch, tmp_path):
    def hidden(bus):
        raise RuntimeError("cudaErrorInvalidDevice")
    monkeypatch.setattr(cp.cuda.runtime, "deviceGetByPCIBusId", hidden)
    assert setup.links_of(0, CARDS, tmp_path).within == HOST


def test_active_ports_are_counted(tmp_path):
    for adapter, states in (("mlx5_0", ("4: ACTIVE",)), ("mlx5_1", ("4: ACTIVE", "1: DOWN"))):
        for number, state in enumerate(states, 1):
            folder = tmp_path / adapter / "ports" / str(number)
            folder.mkdir(parents=True)
            (folder / "state").write_text(state + "\n")
    assert setup.n_active(tmp_path) == 2
    assert setup.n_active(tmp_path / "none") == 0
