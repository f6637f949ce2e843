"""The cache of compiled functions: a change anywhere below is seen, variants compiled at once are kept apart."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scaffe.jit import cache_key, compiled

ROOT = Path(__file__).resolve().parent.parent
HEAD = "from scaffe.jit import compiled\n\n@compiled\n"
CALLEE = HEAD + "def grown(x):\n    return x + {}\n"
ENDS = "def twice(x):\n    return {} * 2\n"
INTRINSIC = """
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from callee import ADDED

def _added(builder, value):
    return builder.add(value, ir.Constant(value.type, ADDED))

@intrinsic
def grown(typing_context, x):
    def generate(context, builder, signature, args):
        return _added(builder, args[0])
    return x(x), generate
"""
WAYS = {  # how `twice` comes to a number that callee.py has: the files beside caller.py, the callee's text
    "a function by its name": ({"caller": f"from callee import grown\n{HEAD}{ENDS.format('grown(x)')}"}, CALLEE),
    "a function of a module": ({"caller": f"import callee\n{HEAD}{ENDS.format('callee.grown(x)')}"}, CALLEE),
    "a constant by its name": ({"caller": f"from callee import ADDED\n{HEAD}{ENDS.format('(x + ADDED)')}"},
                               "ADDED = {}\n"),
    "a constant of a module": ({"caller": f"import callee as c\n{HEAD}{ENDS.format('(x + c.ADDED)')}"}, "ADDED = {}\n"),
    "a constant of a constant": ({"caller": f"from between import SUM\n{HEAD}{ENDS.format('(x + SUM)')}",
                                  "between": "from callee import (\n    ADDED,\n)\nSUM = ADDED + 0\n"}, "ADDED = {}\n"),
    "an array": ({"caller": f"from callee import ADDED\n{HEAD}{ENDS.format('(x + ADDED[1])')}"},
                 "import numpy as np\nADDED = np.array([0, {}])\n"),
    "what an intrinsic calls": ({"caller": f"from between import grown\n{HEAD}{ENDS.format('grown(x)')}",
                                 "between": INTRINSIC}, "ADDED = {}\n"),
}
SHOW = "import {0}; print({0}.twice(5), sum({0}.twice.stats.cache_hits.values()))\n"
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


def python(folder: Path, *arguments: str, **more: str) -> subprocess.Popen:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": f"{folder}:{ROOT}", **more}
    return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def said(folder: Path, code: str, **more: str) -> tuple[str, str]:
    process = python(folder, "-c", code, **more)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return output.strip(), errors


def printed(folder: Path, code: str, **more: str) -> str:
    return said(folder, code, **more)[0]


def test_a_change_in_another_file_is_seen_though_its_time_and_length_are_the_same(tmp_path):
    """All ways in one process each time."""
    callers = [f"caller{i}" for i in range(len(WAYS))]
    for i, (files, _) in enumerate(WAYS.values()):
        for name, text in files.items():
            (tmp_path / f"{name}{i}.py").write_text(re.sub(r"\b(callee|between)\b", rf"\g<1>{i}", text))
    for number, output in ((1, "12 0"), (1, "12 1"), (2, "14 0")):
        for i, (_, text) in enumerate(WAYS.values()):
            (tmp_path / f"callee{i}.py").write_text(text.format(number))
            os.utime(tmp_path / f"callee{i}.py", (1e9, 1e9))
        for stale in tmp_path.glob("__pycache__/callee*"):
            stale.unlink()
        found = printed(tmp_path, "".join(map(SHOW.format, callers))).splitlines()
        assert dict(zip(WAYS, found, strict=True)) == dict.fromkeys(WAYS, output)
    for caller in callers:
        assert len(list((tmp_path / "cache").rglob(f"{caller}.twice*.nbc"))) == 1  # the one before is gone


def test_a_constant_from_the_environment_is_seen(tmp_path):
    (tmp_path / "callee.py").write_text("import os\nADDED = int(os.environ['ADDED'])\n")
    (tmp_path / "caller.py").write_text(WAYS["a constant by its name"][0]["caller"])
    assert [printed(tmp_path, SHOW.format("caller"), ADDED=added) for added in ("1", "2", "2")] == [
        "12 0", "14 0", "14 1"]


def test_what_is_imported_later_changes_nothing(tmp_path):
    """Whether it has been or not, compiled code is found."""
    (tmp_path / "later.py").write_text("")
    (tmp_path / "callee.py").write_text("ADDED = 1\ndef slowly():\n    import later\n    from later import x\n")
    (tmp_path / "caller.py").write_text(WAYS["a constant by its name"][0]["caller"])
    show = SHOW.format("caller")
    assert [printed(tmp_path, code) for code in (show, f"import later; {show}", show)] == ["12 0", "12 1", "12 1"]


def test_what_a_function_reaches_is_ours_alone():
    """futex.wake names a constant of atomics, whose functions are made by llvmlite."""
    from scaffe.collectives.shared import atomics

    modules = set(cache_key._modules(atomics.__name__))
    assert "scaffe.collectives.shared.atomics" in modules
    assert all(name.split(".")[0] == "scaffe" for name in modules)
    constants = set(cache_key._constants(atomics.wake.py_func))
    assert f"scaffe.collectives.shared.atomics.wake: FUTEX_CALL={atomics.FUTEX_CALL}" in constants


def test_a_file_that_lost_its_end_is_compiled_again(tmp_path):
    (tmp_path / "callee.py").write_text("ADDED = 1\n")
    (tmp_path / "caller.py").write_text(WAYS["a constant by its name"][0]["caller"])
    assert printed(tmp_path, SHOW.format("caller")) == "12 0"
    path, = (tmp_path / "cache").rglob("*.nbc")
    for content in (path.read_bytes()[:-1], b""):
        path.write_bytes(content)
        assert printed(tmp_path, SHOW.format("caller")) == "12 0"


def test_processes_that_compile_variants_of_one_name_at_once_get_their_own(tmp_path):
    (tmp_path / "many.py").write_text(MANY)
    for _ in range(2):  # the second time all is there
        processes = [python(tmp_path, "many.py") for _ in range(4)]
        for process in processes:
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) == 32
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_bounds_are_checked_on_demand_by_code_of_its_own(tmp_path):
    (tmp_path / "caller.py").write_text(HEAD + "def third(x):\n    return x[3]\n")
    body = ("import numpy, caller\ntry:\n    caller.third(numpy.zeros(3))\n    print('read')\n"
            "except IndexError:\n    print('refused')\nprint(sum(caller.third.stats.cache_hits.values()))")
    assert [printed(tmp_path, body, SCAFFE_BOUNDSCHECK=on) for on in ("0", "1", "0", "1", "")] == [
        "read\n0", "refused\n0", "read\n1", "refused\n1", "read\n1"]


def test_another_numba_compiles_in_every_process_and_one_line_says_so(tmp_path):
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    body = ("from numba.core.compiler import CompileResult\ndel CompileResult._rebuild\n"
            "import callee, scaffe.layers.kernels.cpu.softmax\nprint(callee.grown(5))")
    output, errors = said(tmp_path, body)
    assert output == "6"
    assert errors.count("\n") == 1
    assert "every process compiles its functions for itself" in errors
    assert not (tmp_path / "cache").exists()


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
    (tmp_path / "__pycache__").write_text("a file where the cache wants a folder: root may write anywhere")
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "NUMBA_CACHE_DIR": "", "TMPDIR": "/dev/shm"}
    (tmp_path / "sitecustomize.py").write_text("import tempfile\ntempfile.tempdir = '/dev/null'\n")
    assert printed(tmp_path, "import callee; print(callee.grown(5))", **nowhere) == "6"


def test_a_terminal_sees_nothing_but_what_a_program_prints(tmp_path):
    """Behind mpirun each rank's output is a terminal; where colorama is installed, numba would end it with colours."""
    (tmp_path / "program.py").write_text(HEAD + "def last(values):\n    return values[-1]\n\nprint(last((1, 2, 3)))\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    user, end = pty.openpty()
    result = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, stdout=end, stderr=subprocess.PIPE, text=True,
                            env=environment | {"TERM": "xterm", "PYTHONPATH": str(ROOT)}, check=False)
    os.close(end)
    assert result.returncode == 0, result.stderr
    assert os.read(user, 4096) == b"3\r\n"
    os.close(user)
