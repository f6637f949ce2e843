"""The cache of compiled functions: a change anywhere below is seen, variants compiled at once are kept apart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAD = "from machine_code import compiled\n\n@compiled\n"
CALLEE = HEAD + "def grown(x):\n    return x + {}\n"
CALLER = "from callee import grown\n" + HEAD + "def twice(x):\n    return grown(x) * 2\n"
MANY = """
from machine_code import compiled

def adder(number):
    @compiled
    def add(x):
        return x + number
    return add

import random
adders = [adder(number) for number in range(6)]
calls = [(n, x) for n in range(6) for x in (1, 1.5, 1j)]
random.shuffle(calls)
wrong = [(n, x) for n, x in calls if adders[n](x) != x + n]
raise SystemExit(f"wrong: {wrong}" if wrong else 0)
"""


def python(folder: Path, *arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": f"{folder}:{ROOT}"}
    return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def printed(folder: Path, code: str) -> str:
    process = python(folder, "-c", code)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return output


def test_a_change_in_a_function_of_another_file_is_seen_though_its_time_and_length_are_the_same(tmp_path):
    show = "import caller; print(caller.twice(5), sum(caller.twice.stats.cache_hits.values()))"
    (tmp_path / "caller.py").write_text(CALLER)
    for number, output in ((1, "12 0"), (1, "12 1"), (2, "14 0")):
        (tmp_path / "callee.py").write_text(CALLEE.format(number))
        os.utime(tmp_path / "callee.py", (1e9, 1e9))
        (tmp_path / "__pycache__").mkdir(exist_ok=True)
        for stale in (tmp_path / "__pycache__").glob("callee*"):
            stale.unlink()
        assert printed(tmp_path, show).strip() == output
    assert len(list((tmp_path / "cache").rglob("caller.twice*.nbc"))) == 1  # the one before is gone


def test_processes_that_compile_variants_of_one_name_at_once_get_their_own(tmp_path):
    (tmp_path / "many.py").write_text(MANY)
    for _ in range(2):  # the second time all is there
        processes = [python(tmp_path, "many.py") for _ in range(4)]
        for process in processes:
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) == 18
    assert not list((tmp_path / "cache").rglob("*.part"))


@pytest.mark.parametrize("package", ["collectives", "layers", "data", "scaffe"])
def test_nobody_uses_numbas_own_cache(package):
    assert not [path for path in (ROOT / package).rglob("*.py") if "cache=True" in path.read_text()]
