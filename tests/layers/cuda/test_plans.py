"""cuDNN plans our graphs for a card that is not there; SCAFFE_TEST_CUDNN=1 asks for it (minutes)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.layers.cuda import benchmark_graphs, plan_graphs

ASKED = os.environ.get("SCAFFE_TEST_CUDNN") == "1"
pytestmark = pytest.mark.skipif(not ASKED or find_spec("cudnn") is None,
                                reason="SCAFFE_TEST_CUDNN=1 asks for it; needs an extra, cuda12 or cuda13")


def driver_without_functions(folder: Path, libraries: list[Path]) -> None:
    """A libcuda.so.1 whose functions all answer that there is no device."""
    names = set()
    for library in libraries:
        names |= {n.decode() for n in re.findall(rb"\0(cu[A-Z][A-Za-z0-9_]+)(?=\0)", library.read_bytes())}
    names = {n for n in names if not n.startswith(("cublas", "cudnn", "cuda"))}
    code = "".join(f"int {n}(void) {{ return 100; }}\n" for n in sorted(names))
    compiler = [shutil.which("cc") or "gcc", "-shared", "-fPIC", "-w", "-x", "c", "-"]
    subprocess.run([*compiler, "-o", folder / "libcuda.so.1"], input=code, text=True, check=True)


def lines_of(folder: Path, *arguments: str) -> list[str]:
    """What plan_graphs prints."""
    nvidia = Path(find_spec("nvidia").submodule_search_locations[0])
    places = [str(p) for p in nvidia.glob("*/lib")]
    try:
        import ctypes

        ctypes.CDLL("libcuda.so.1")
    except OSError:
        driver_without_functions(folder, list(nvidia.glob("cudnn/lib/*.so.9")))
        places.append(str(folder))
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(places)}
    done = subprocess.run([sys.executable, "-m", plan_graphs.__name__, *arguments], capture_output=True, text=True,
                          timeout=1500, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("card", plan_graphs.CARDS)
def test_every_graph_has_a_plan(tmp_path: Path, card: str) -> None:
    lines = lines_of(tmp_path, card, "awkward")
    names = [name for name, _ in plan_graphs.every_graph()]
    assert len(lines) == len(names) + len(plan_graphs.REFUSED)
    for line, name in zip(lines, names, strict=False):
        assert line.startswith(name) and "built 0" not in line, line
    assert all(line.endswith(": refused") for line in lines[len(names):]), lines[len(names):]


@pytest.mark.parametrize("card", plan_graphs.CARDS)
def test_workspaces_are_those_that_tests_are_told(tmp_path: Path, card: str) -> None:
    told = json.loads(Path(__file__).with_name("cudnn_workspaces.json").read_text())
    assert lines_of(tmp_path, card, "workspaces") == [f"{name}: {n_bytes}" for name, n_bytes in told.items()]


@pytest.mark.parametrize("card", plan_graphs.CARDS)
def test_plain_convolutions_of_the_benchmarks_have_precompiled_engines(tmp_path: Path, card: str) -> None:
    """Fused ones of half types, and norms, are compiled on the spot: once a machine, since plans are kept."""
    lines = lines_of(tmp_path, card, "benchmarks")
    assert len(lines) == len(benchmark_graphs.every_graph())
    assert [line for line in lines if line.endswith(": none")] == []
    plain = [line for line in lines if " conv_" in line]
    assert [line for line in plain if ": precompiled" not in line] == []
    compiled = [float(seconds) for line in lines for seconds in re.findall(r": compiled in (\S+) s", line)]
    assert max(compiled, default=0) < 60
