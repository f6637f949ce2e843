"""What the assembler says of every kernel on A100, H100 and B200: registers, spills, and blocks that run at once."""

from __future__ import annotations

import pytest

from scaffe.collectives.cuda.kernels import BLOCKS_PER_MULTIPROCESSOR, DEFINITIONS, SOURCE, THREADS_PER_BLOCK
from scaffe.layers.kernels.cuda.launch import SOURCES, THREADS, options, source
from tests.layers.cuda import nvrtc
from tests.layers.cuda.test_compile import CUPYS

CARDS = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10}  # compute capability, bytes of shared memory (CUDA C++ Guide)
LEAST_BLOCKS = 4  # of 256 threads: half of what a multiprocessor holds hides memory's latency with 16-byte loads
FEWER = {("update_rules", "float32"): 5, ("batch_norm", "bfloat16"): 3, ("lrn", "bfloat16"): 3}
MOST_SPILLED = 16  # bytes a thread: of collectives, whose registers are held to what six blocks leave
ON_ALL = ("batch_norm", "elementwise", "pooling", "update_rules")  # what takes most time beside cuDNN
CASES = [*((family.stem, 90, "float32") for family in sorted(SOURCES.glob("*.cu"))),
         *(pytest.param(family, capability, "float32", marks=pytest.mark.thorough)
           for family in ON_ALL for capability in (80, 100)),
         ("batch_norm", 90, "bfloat16"), ("lrn", 90, "bfloat16"), ("elementwise", 90, "bfloat16")]
pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC (pip install 'scaffe[gpu-check]')")


def usage(code: str, given: tuple[str, ...], capability: int) -> dict[str, nvrtc.Usage]:
    """Of every kernel of a source."""
    if capability not in nvrtc.architectures():
        pytest.skip(f"this NVRTC does not know sm_{capability}")
    found = nvrtc.usage(code, (*given, f"-arch=sm_{capability}"))
    assert found
    return found


@pytest.mark.parametrize(("family", "capability", "dtype"), CASES)
def test_layers_kernels_spill_nothing_and_fill_the_card(family: str, capability: int, dtype: str) -> None:
    import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 by it

    chosen = options(dtype, "float16" if family == "update_rules" else None)
    for name, kernel in usage(source(family), (*chosen, *CUPYS), capability).items():
        assert kernel.spill_bytes == 0, name
        assert kernel.blocks(THREADS, CARDS[capability]) >= FEWER.get((family, dtype), LEAST_BLOCKS), (name, kernel)


@pytest.mark.parametrize("capability", [90, *(pytest.param(card, marks=pytest.mark.thorough) for card in (80, 100))])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "bf16"])
def test_sums_run_as_many_blocks_at_once_as_their_grid_has(kind: str, capability: int) -> None:
    assert kind in DEFINITIONS
    for name, kernel in usage(SOURCE.read_text(), ("-std=c++17", *DEFINITIONS[kind]), capability).items():
        assert kernel.spill_bytes <= MOST_SPILLED, name
        assert kernel.blocks(THREADS_PER_BLOCK, CARDS[capability]) >= BLOCKS_PER_MULTIPROCESSOR, (name, kernel)


def test_the_calculator_knows_what_the_guide_says() -> None:
    """By hand: 40 registers x 32 are 1,280 to a warp, 51 warps, 6 blocks of 8."""
    assert nvrtc.Usage(40, 0, 0).blocks(256, 228 << 10) == 6
    assert nvrtc.Usage(32, 0, 0).blocks(256, 228 << 10) == 8
    assert nvrtc.Usage(255, 0, 0).blocks(256, 228 << 10) == 1
    assert nvrtc.Usage(16, 0, 47 << 10).blocks(256, 164 << 10) == 3
