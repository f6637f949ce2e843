"""The cache of compiled functions: a change anywhere below is seen, variants compiled at once are kept apart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaffe.jit import compiled

ROOT = Path(__file__).resolve().parent.parent
HEAD = "from scaffe.jit import compiled\n\n@compiled\n"
CALLEE = HEAD + "def grown(x):\n    return x + {}\n"
CALLER = "from callee import grown\n" + HEAD + "def twice(x):\n    return grown(x) * 2\n"
MANY = """
from scaffe.jit import compiled

@compiled
def added(x, y):
    return x + y

@compiled
def both(x, y):
    return added(x, y) * added(y, x)

import random
values = [1, 2.5, 3j, True]
calls = [(x, y) for x in values for y in values]
random.shuffle(calls)
wrong = [(x, y) for x, y in calls if both(x, y) != (x + y) * (x + y)]
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
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) == 32
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_a_function_made_in_a_function_is_refused():
    def inner(x):
        return x

    with pytest.raises(TypeError, match=r"got test_a_function.*<locals>.inner"):
        compiled(inner)


@pytest.mark.parametrize("package", ["collectives", "layers", "data", "scaffe"])
def test_nobody_uses_numbas_own_cache(package):
    assert not [path for path in (ROOT / package).rglob("*.py") if "cache=True" in path.read_text()]


def test_without_a_place_for_the_cache_functions_compile_and_run(tmp_path):
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    (tmp_path / "__pycache__").write_text("a file where numba wants a folder: root may write anywhere")
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | nowhere
    run = subprocess.run([sys.executable, "-c", "import callee; print(callee.grown(5))"], env=environment, text=True,
                         cwd=tmp_path, capture_output=True, timeout=100)
    assert (run.returncode, run.stdout.strip()) == (0, "6"), run.stderr
