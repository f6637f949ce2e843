"""Every GPU source compiles for real cards, from Volta to Blackwell, with NVRTC alone."""

from __future__ import annotations

import pytest

from scaffe.layers.kernels.cuda.launch import SOURCES, options, source
from tests.layers.cuda import nvrtc

FAMILIES = sorted(path.stem for path in SOURCES.glob("*.cu"))
OLDEST, USUAL, LATEST = 70, 90, 100  # other cards between them compile alike
WHOLE = [(USUAL, "bfloat16")]  # to machine code, as float32 in test_occupancy; the others to PTX, which is faster
CASES = [*WHOLE, (OLDEST, "bfloat16"), *(pytest.param(*case, marks=pytest.mark.thorough) for case in (
    (USUAL, "float16"), (USUAL, "float64"), (LATEST, "float32")))]
CUPYS = ("--device-as-default-execution-space", "-ftz=true")  # what CuPy adds
pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC (pip install 'scaffe[gpu-check]')")


@pytest.mark.parametrize(("architecture", "dtype"), CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_compiles(family: str, architecture: int, dtype: str) -> None:
    known = nvrtc.architectures()
    if architecture not in known:
        if architecture != OLDEST:
            pytest.skip(f"this NVRTC does not know sm_{architecture}")
        architecture = min(known)
    import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 by it

    chosen = options(dtype, "float16" if family == "update_rules" else None)
    kind = "sm" if (architecture, dtype) in WHOLE else "compute"
    assert not nvrtc.errors(source(family), (*chosen, *CUPYS, f"-arch={kind}_{architecture}"))


def test_a_mistake_is_found() -> None:
    assert "undefined" in nvrtc.errors("__global__ void f() { g(); }", ("-std=c++17",))
