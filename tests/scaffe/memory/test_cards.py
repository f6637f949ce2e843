"""Cards by name: their figures against what was measured on an H200, and which one ``-memory_of gpu`` means."""

import json
import os
import re

import numpy as np
import pytest

from scaffe.cli import main as cli
from scaffe.layers.kernels import device
from scaffe.memory.problem.cards import CARDS, named, speeds_of
from scaffe.memory.problem.iteration import Bandwidth
from scaffe.memory.run.card_here import speeds_here
from tests.scaffe.memory.test_report import NET

FLOAT32, FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)


def test_an_h200_copies_as_fast_as_measured():
    figures = speeds_of("h200", FLOAT32)
    assert figures.speed.n_bytes == pytest.approx(4.196e12, rel=0.01)  # docs/gpu.md: its own copies
    assert figures.bandwidth.out == figures.bandwidth.back == pytest.approx(50e9, rel=0.01)
    assert figures.bandwidth.at_once


@pytest.mark.parametrize("name", CARDS)
def test_products_are_fewer_than_the_peak_and_half_types_are_faster(name):
    card = CARDS[name]
    half, tf32, plain = (card.speed(*each).products for each in ((FLOAT16,), (FLOAT32,), (FLOAT32, False)))
    assert plain < card.float32 * 1e12 / 2 and tf32 < card.tf32 * 1e12 / 2 and tf32 < half < card.half * 1e12 / 2


@pytest.mark.parametrize(("says", "name"), [
    ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100pcie"),
    ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA L40S", "l40s"), ("Tesla V100-SXM2-16GB", "v100"),
    ("NVIDIA GeForce RTX 4090", "")])
def test_a_card_is_known_by_what_cuda_calls_it(says, name):
    assert named(says) == name


def test_without_a_gpu_a_named_one_is_said(monkeypatch):
    monkeypatch.setattr(device, "missing", lambda: "there is none")
    found, h200 = speeds_here(FLOAT16), speeds_of("h200", FLOAT16)
    assert (found.speed, found.bandwidth) == (h200.speed, h200.bandwidth)
    assert found.source == "figures of h200, since no GPU is here"


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A card of that name, and what was measured of its link, if anything was."""
    def there(name, link=None):
        monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path))
        monkeypatch.setattr(device, "missing", lambda: "")
        monkeypatch.setattr(device, "describe", lambda number: {"Name": name})
        monkeypatch.setattr(device, "bus_id", lambda number: "0000:01:00.0")
        monkeypatch.setattr(device, "speeds", lambda: (10e12, 1e12))
        if link:
            kept = {f"{os.uname().nodename} 0000:01:00.0 {name}": link}
            (tmp_path / "links.json").write_text(json.dumps(kept))
        return speeds_here(FLOAT32)
    return there


def test_of_the_card_that_is_there_the_link_is_as_measured(here):
    found = here("NVIDIA A100-SXM4-80GB", [21e9, 23e9])
    assert found.bandwidth == Bandwidth(21e9, 23e9, at_once=True)
    assert found.speed == speeds_of("a100", FLOAT32).speed
    assert "NVIDIA A100-SXM4-80GB" in found.source and "as measured" in found.source


def test_a_card_that_nobody_knows_goes_by_its_clocks(here):
    found = here("NVIDIA Something")
    assert 0.2e12 < found.speed.n_bytes < 1e12 and 1e12 < found.speed.products < 10e12
    assert "not measured yet" in found.source


@pytest.mark.parametrize("name", ["gpu", *CARDS])
def test_summary_says_whose_figures_it_plans_with(tmp_path, capfd, name):
    (tmp_path / "net.prototxt").write_text(NET)
    command = ["summary", str(tmp_path / "net.prototxt"), "-memory", "99%", "-memory_of", name]
    assert cli.main(command) == 0
    assert re.search(r"predicted time .* \(figures of ", capfd.readouterr().out)


def test_half_types_are_for_gpus(tmp_path, capfd):
    (tmp_path / "net.prototxt").write_text(NET)
    command = ["summary", str(tmp_path / "net.prototxt"), "-memory", "100%", "-precision", "fp16"]
    assert cli.main(command) == 1
    assert "say which by -memory_of" in capfd.readouterr().err
    assert cli.main([*command, "-memory_of", "a100"]) == 0
