"""What joins GPUs, on described machines."""

import pytest

from scaffe.collectives.cuda import links
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
    monkeypatch.setattr(links, "_p2p_attribute", lambda: asked)


@pytest.mark.parametrize(("cards", "peers", "with_atomics", "within"), [
    (CARDS[:1] * 4, (), (), ONE_CARD), (CARDS, (1, 2), (1, 2), NVLINK), (CARDS, (1, 2), (1,), PCI_EXPRESS),
    (CARDS, (1,), (1,), HOST), (CARDS[:2] * 2, (1,), (1,), NVLINK), (CARDS[:2], (1,), (), PCI_EXPRESS)])
def test_the_worst_of_a_nodes_links_counts(cp, monkeypatch, tmp_path, cards, peers, with_atomics, within):
    described(cp, monkeypatch, peers, with_atomics)
    assert links.links_of(0, cards, tmp_path) == Links(within, 0)


class Driver:
    """libnvidia-ml of a machine: which pairs of its GPUs can read one another, and which have NVLink between them."""

    def __init__(self, readable, joined, cards=CARDS):
        self.cards, self.ways = list(cards), {0: readable, 2: joined}

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus, handle):
        if bus.decode() not in self.cards:
            return 6  # NVML_ERROR_NOT_FOUND
        handle._obj.value = self.cards.index(bus.decode()) + 1
        return 0

    def nvmlDeviceGetP2PStatus(self, first, second, way, status):
        status._obj.value = 0 if {first.value - 1, second.value - 1} in self.ways[way] else 5
        return 0


@pytest.mark.parametrize(("driver", "within"), [
    (Driver([{0, 1}, {0, 2}], [{0, 1}, {0, 2}]), NVLINK), (Driver([{0, 1}, {0, 2}], [{0, 1}]), PCI_EXPRESS),
    (Driver([{0, 1}], [{0, 1}]), HOST), (Driver([], [], CARDS[:2]), HOST), (None, HOST)])
def test_the_driver_is_asked_about_gpus_that_this_process_does_not_see(cp, monkeypatch, tmp_path, driver, within):
    def hidden(bus):
        raise RuntimeError("cudaErrorInvalidDevice")
    monkeypatch.setattr(cp.cuda.runtime, "deviceGetByPCIBusId", hidden)
    monkeypatch.setattr(links, "_driver", lambda: driver)
    assert links.links_of(0, CARDS, tmp_path).within == within


def test_ranks_that_have_read_one_anothers_memory_are_joined_better_than_through_the_host():
    assert Links(HOST, 4).proven() == Links(PCI_EXPRESS, 4)
    assert [Links(kind).proven().within for kind in (PCI_EXPRESS, NVLINK, ONE_CARD)] == [PCI_EXPRESS, NVLINK, ONE_CARD]


def test_active_ports_are_counted(tmp_path):
    for adapter, ports in (("mlx5_0", (("4: ACTIVE", "400 Gb/sec (4X NDR)"),)),
                           ("mlx5_1", (("4: ACTIVE", "200 Gb/sec (4X HDR)"), ("1: DOWN", "10 Gb/sec (4X SDR)")))):
        for number, (state, rate) in enumerate(ports, 1):
            folder = tmp_path / adapter / "ports" / str(number)
            folder.mkdir(parents=True)
            (folder / "state").write_text(state + "\n")
            (folder / "rate").write_text(rate + "\n")
    assert sorted(links.active_rates(tmp_path)) == [25e9, 50e9]
    (tmp_path / "mlx5_1" / "ports" / "1" / "rate").write_text("unknown")
    assert sorted(links.active_rates(tmp_path)) == [0, 50e9]
    assert links.active_rates(tmp_path / "none") == []
