"""What installs and starts it elsewhere, as linters see it; train.pbs with a server that is two small scripts."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import scaffe
from scaffe.cli import main as cli
from scaffe.flags import Flags
from tests.mpirun import MPIRUN

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "jobs"
YAML_RULES = "{extends: default, rules: {line-length: {max: 120}, document-start: disable}}"
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" display: 10 max_iter: %d snapshot_prefix: "run"
"""
NET = """
layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param {
        shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 }
        data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "i" type: "InnerProduct" bottom: "x" top: "p" inner_product_param { num_output: 1 } }
layer { name: "l" type: "EuclideanLoss" bottom: "p" bottom: "y" top: "loss" }
"""


def run_linter(name: str, *arguments: object) -> subprocess.CompletedProcess:
    """A program that lies beside this Python."""
    return subprocess.run([Path(sys.executable).parent / name, *map(str, arguments)], cwd=ROOT, capture_output=True,
                          text=True, check=False)


def test_the_shells_linter_has_nothing_to_say():
    scripts = [*JOBS.glob("*.sh"), *JOBS.glob("*.sbatch"), *JOBS.glob("*.pbs"), *(ROOT / "tests/slurm").glob("*.sh")]
    assert len(scripts) > 6
    said = run_linter("shellcheck", "-x", *scripts)
    assert (said.stdout, said.returncode) == ("", 0)


def test_the_kubernetes_file(monkeypatch):
    """Its numbers of ranks agree, and its command is understood."""
    path = JOBS / "mpijob.yaml"
    said = run_linter("yamllint", "-s", "-d", YAML_RULES, path)
    assert (said.stdout, said.returncode) == ("", 0)
    spec = yaml.safe_load(path.read_text())["spec"]
    launcher, worker = (spec["mpiReplicaSpecs"][part] for part in ("Launcher", "Worker"))
    command = launcher["template"]["spec"]["containers"][0]["command"]
    assert int(command[command.index("-np") + 1]) == worker["replicas"] * spec["slotsPerWorker"]
    parsed, parse = [], Flags.parse
    monkeypatch.setattr(Flags, "parse", lambda self, argv: parsed.append(parse(self, argv)) or sys.exit(0))
    with pytest.raises(SystemExit):
        cli.main(command[command.index("scaffe") + 1:])
    assert len(parsed) == 1


@pytest.mark.parametrize("name", ["CITATION.cff", ".github/workflows/publish.yml"])
def test_other_yaml(name):
    said = run_linter("yamllint", "-s", "-d", YAML_RULES, ROOT / name)
    assert (said.stdout, said.returncode) == ("", 0)


def test_the_citation_names_this_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == scaffe.__version__


def test_the_recipe_for_spack_asks_for_what_the_wheel_asks_for():
    """By Spack's names and with the wheel's lowest versions; oneDNN is Spack's own, no wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = dict(re.match(r"([\w-]+)>=([\d.]+)", line).groups() for line in
                  [*(line for line in project["dependencies"] if "onednn" not in line), *extras["bf16"]])
    calls = [node for node in ast.walk(ast.parse((JOBS / "spack/package.py").read_text()))
             if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "depends_on"]
    specs = [node.args[0].value for node in calls]
    found = {match[1]: match[2] for spec in specs if (match := re.match(r"py-([\w-]+)@([\d.]+):", spec))}
    assert found.pop("setuptools") == "77.0.1"
    assert found == {name.replace("_", "-"): version for name, version in wanted.items()}
    assert {spec.split("@")[0] for spec in specs if not spec.startswith("py-")} == {"python", "onednn", "opencv"}


def test_the_image_definition_has_its_parts_and_a_shell_that_parses():
    text = (JOBS / "scaffe.def").read_text()
    parts = dict(re.findall(r"^%(\w+)\n((?:    .*\n|\n)*)", text, re.MULTILINE))
    assert set(parts) == {"files", "post", "runscript", "test", "help"}
    script = subprocess.run(["sh", "-n"], input=parts["post"], text=True, capture_output=True, check=False)
    assert (script.returncode, script.stderr) == (0, "")
    image = re.search(r"^FROM (\S+)", (JOBS / "Dockerfile").read_text(), re.MULTILINE)[1]
    assert f"From: {image}\n" in text


@pytest.fixture
def server(tmp_path):
    """A folder with qstat, which says `walltime`, and qsub, which notes how it was called; and what a job finds."""
    said = tmp_path / "job"
    for name, body in (("qstat", f'[ "$1" = -fw ] && cat {said}'),
                       ("qsub", 'echo "$FLAGS|$SCAFFE_HOME|$*" >> submitted; echo 18.server')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text("localhost\nlocalhost\n")
    (tmp_path / "net.prototxt").write_text(NET)

    def start(walltime: str, n_iterations: int, flags: str = "-solver solver.prototxt") -> subprocess.CompletedProcess:
        said.write_text(f"Job Id: 17.server\n    Resource_List.select = 1:ncpus=2:mpiprocs=2\n"
                        f"    Resource_List.walltime = {walltime}\n")
        (tmp_path / "solver.prototxt").write_text(SOLVER % n_iterations)
        found = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PBS_JOBID": "17.server", "PBS_O_WORKDIR": str(tmp_path),
                 "PBS_NODEFILE": str(tmp_path / "nodes"), "SCAFFE_HOME": str(ROOT), "PYTHON": sys.executable,
                 "MPIRUN": MPIRUN, "FLAGS": flags, "SECONDS_BEFORE_END": "0"}
        return subprocess.run([JOBS / "train.pbs"], env=os.environ | found, capture_output=True, text=True, timeout=120,
                              check=False)

    return start


@pytest.mark.thorough
@pytest.mark.mpi_job
def test_a_pbs_job_that_its_walltime_stops_submits_the_next(server, tmp_path):
    first = server("00:00:12", 10**8)
    assert first.returncode == 0, first.stderr
    assert "job 18.server goes on" in first.stderr
    flags, home, arguments = (tmp_path / "submitted").read_text().strip().split("|")
    assert (flags, home) == ("-solver solver.prototxt", str(ROOT))
    assert shlex.split(arguments) == ["-v", "FLAGS,SCAFFE_HOME", "-l", "select=1:ncpus=2:mpiprocs=2", "-l",
                                      "walltime=00:00:12", str(JOBS / "train.pbs")]
    state, = tmp_path.glob("run_iter_*.solverstate")
    done = int(re.findall(r"\d+", state.name)[0])
    second = server("01:00:00", done + 5)
    assert second.returncode == 0, second.stderr
    assert f"Restoring previous solver status from {state.name}" in second.stderr + second.stdout
    assert "Optimization Done" in second.stderr + second.stdout
    assert len((tmp_path / "submitted").read_text().splitlines()) == 1  # it was at its end


@pytest.mark.parametrize(("missing", "line"), [("FLAGS", "the flags of scaffe train"),
                                               ("SCAFFE_HOME", "the folder of jobs/env.sh")])
def test_what_a_pbs_job_needs_is_said(tmp_path, missing, line):
    found = {"PBS_O_WORKDIR": str(tmp_path), "SCAFFE_HOME": str(ROOT), "FLAGS": "-h"} | {missing: ""}
    said = subprocess.run([JOBS / "train.pbs"], env=os.environ | found, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert said.stderr.strip().endswith(line)
