"""The shape of the code, held by parsing it: imports go one way, nothing is too long, assert is for tests."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("scaffe", "layers", "data", "collectives")
GROUND = tuple(f"scaffe.{name}" for name in (
    "atomic_files", "control_groups", "environment", "errors", "flags", "forking", "hdf5_input", "input_files", "jit",
    "line_chart", "live_line", "log", "machine_code", "mapped_files", "mapped_memory", "markup", "net_spec",
    "private_files", "proto", "signal_mask",
    "start_watch", "svg", "temporary", "threads"))
BELOW = ("scaffe.layers", "scaffe.data", "scaffe.collectives")
MAY_IMPORT = {  # ours, beside itself and the ground floor
    "scaffe.layers": (),
    "scaffe.data": (),
    "scaffe.collectives": (),
    "scaffe.files": (),
    "scaffe.pictures": (),
    "scaffe.report": ("scaffe.pictures", "scaffe.files"),
    "scaffe.memory": ("scaffe.nets", "scaffe.files", "scaffe.layers", "scaffe.data"),
    "scaffe.nets": ("scaffe.files", "scaffe.layers", "scaffe.data"),
    "scaffe.export": ("scaffe.nets", "scaffe.files"),
    "scaffe.training": ("scaffe.memory", "scaffe.nets", "scaffe.files", *BELOW),
    "scaffe.pycaffe": ("scaffe.training", "scaffe.nets", "scaffe.files", "scaffe.pictures", "scaffe.export", *BELOW),
    "scaffe.torch": ("scaffe.collectives",),
    "scaffe.cli": ("scaffe",),
}
DOORS = ("scaffe.pycaffe", "scaffe.pictures", "scaffe.files", *BELOW, *(f"scaffe.{door}" for door in (
    "classifier", "coord_map", "detector", "draw", "io", "version")))
"""What the modules in scaffe/ itself that are not on the ground may import: Caffe's doors, and the version."""
CUPY_DOORS = {"collectives/cuda/device.py", "layers/kernels/device.py"}
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 330, 51, 9


def sources() -> list[Path]:
    return [p for name in FOLDERS for p in sorted((ROOT / name).rglob("*.py")) if not p.name.endswith("_pb2.py")]


def room(path: Path) -> str:
    """The folder of ``MAY_IMPORT`` that a module is of, or ground, or door."""
    name = module(path)
    if within(name, GROUND):
        return "ground"
    return ".".join(name.split(".")[:2]) if name.count(".") > 1 or name in MAY_IMPORT else "door"


def allowed(path: Path) -> tuple[str, ...]:
    """The packages whose modules a file may import."""
    where = room(path)
    if where in ("ground", "door"):
        return GROUND if where == "ground" else (*GROUND, *DOORS)
    return (where, *GROUND, *MAY_IMPORT[where])


def module(path: Path) -> str:
    """The dotted name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("scaffe", *parts) if parts[0] != "scaffe" else parts).removesuffix(".__init__")


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sources()}


def test_imports_go_one_way(trees):
    """A package's own ``__init__`` may be named on the way to a module that is allowed."""
    wrong = []
    for path, tree in trees.items():
        packages = ("scaffe",) if path.name == "__main__.py" else allowed(path)
        for name in imported(tree):
            passed_through = any(package.startswith(f"{name}.") for package in packages) or name == "scaffe"
            if name.split(".")[0] == "scaffe" and not within(name, packages) and not passed_through:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_no_import_circles(trees):
    """Module by module; imports inside functions and for type checkers alone count too."""
    graph = imports_by_module(trees)
    assert not [name for name in graph if name in reached(graph, name)]


def test_rooms_of_the_server_import_one_way(trees):
    """Room by room: what lies in the folder itself is built of the rooms, and no room imports it."""
    home, rooms = "scaffe.collectives.server.", dict[str, set[str]]()
    for name, others in imports_by_module(trees).items():
        if name.startswith(home) and (ROOT / "collectives/server" / (room := name.split(".")[3])).is_dir():
            rooms.setdefault(room, set()).update(o.split(".")[3] for o in others if o.startswith(home))
    graph = {name: others - {name} for name, others in rooms.items()}
    assert {"protocol", "nodes", "workers"} <= set(graph)
    assert not [name for name in graph if name in reached(graph, name)]
    assert set().union(*graph.values()) <= set(graph)


def test_the_runtime_does_not_load_the_simulator(trees):
    found = reached(imports_by_module(trees), "scaffe.collectives")
    assert "scaffe.collectives.runtime.engine" in found
    assert not [name for name in found if within(name, ("scaffe.collectives.model", "scaffe.collectives.bench"))]


def imports_by_module(trees: dict[Path, ast.Module]) -> dict[str, set[str]]:
    known = {module(path) for path in trees}
    return {module(path): set(edges(tree, known)) for path, tree in trees.items()}


def edges(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """The modules that a file imports; `from a.b import c` is a.b.c where that is a module, else a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in named)


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """The modules that come with `start`, itself only where it comes back to itself."""
    found, new = set[str](), graph[start] - {start}
    while new:
        found |= new
        new = set().union(*(graph.get(name, set()) for name in new)) - found
    return found


def test_mpi4py_only_in_collectives(trees):
    assert not [p for p, tree in trees.items() if room(p) != "scaffe.collectives"
                and any(n.split(".")[0] == "mpi4py" for n in imported(tree))]


def test_torch_only_in_scaffe_torch(trees):
    assert not [p for p, tree in trees.items() if room(p) != "scaffe.torch"
                and any(n.split(".")[0] == "torch" for n in imported(tree))]


def test_cupy_comes_through_one_door_a_package(trees):
    found = {str(p.relative_to(ROOT)) for p, tree in trees.items() if any(n.split(".")[0] == "cupy"
                                                                         for n in imported(tree))}
    assert found <= CUPY_DOORS


def test_assert_is_for_tests(trees):
    assert not [f"{p.relative_to(ROOT)}:{node.lineno}" for p, tree in trees.items() for node in ast.walk(tree)
                if isinstance(node, ast.Assert)]


def test_nothing_is_too_long(trees):
    files = [str(p.relative_to(ROOT)) for p in trees if len(p.read_text().splitlines()) > MAX_FILE_LINES]
    functions = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
                n_parameters = len(node.args.args) + len(node.args.kwonlyargs)
                is_kernel = any("compiled" in ast.dump(d) for d in node.decorator_list)
                if n_lines > MAX_FUNCTION_LINES or (n_parameters > MAX_PARAMETERS and not is_kernel):
                    functions.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not files
    assert not functions


def test_public_things_have_docstrings(trees):
    bare = []
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_") \
                    and not ast.get_docstring(node):
                bare.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not bare


def test_nobody_knows_a_strategy_by_name(trees):
    """Nor its class: outside training/strategies/ they are found in its registry."""
    home = ROOT / "scaffe/training/strategies"
    texts = [path.read_text() for path in home.glob("*.py")]
    names = {name for text in texts for name in re.findall(r'@strategies\.register\("([^"]+)"\)', text)}
    assert len(names) >= 4
    assert not [f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r}" for path, tree in trees.items()
                if home not in path.parents for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and node.value in names]


OLD = r"(?:collectives|layers|data|machine_code|whole_files)(?:\.\w+)*"
OLD_IMPORT = re.compile(rf"""\bfrom +{OLD} +import\b|(?:^|["';]) *import +{OLD} *(?:$|;|,| as )""")
TEXTS = {".py", ".md", ".sh", ".sbatch", ".toml"}


def test_nobody_imports_the_folders_by_their_own_names():
    """They are scaffe.collectives, scaffe.layers and scaffe.data: a module under two names would exist twice."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = [ROOT / name for name in listed.splitlines() if Path(name).suffix in TEXTS]
    found = [f"{path.relative_to(ROOT)}: {line.strip()}" for path in texts if path != Path(__file__).resolve()
             for line in path.read_text().splitlines() if OLD_IMPORT.search(line)]
    assert not found
