"""All tests that a GPU can run, each file in a process of its own with a time limit, and one JUnit file of them all.

    python -m tests.gpu [--junit FILE] [--seconds N] [FILE...]

A file that hangs or takes the interpreter down is one failure, and the next one runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "tests/scaffe/device"
FILES = ("tests/pretend/test_real_names.py", "tests/gpu/test_collectives.py", "tests/layers/cuda/test_device_door.py",
         "tests/layers/cuda/test_backends.py", "tests/layers/cuda/test_pixels.py",
         "tests/layers/cuda/test_kernels.py", "tests/layers/cuda/test_half_losses.py",
         "tests/layers/cuda/test_batches.py", "tests/layers/cuda/test_copies.py",
         "tests/layers/cuda/test_draws.py", "tests/layers/cuda/test_updates.py",
         "tests/layers/cuda/test_convolution.py",
         "tests/layers/cuda/test_batch_norm.py", "tests/layers/cuda/test_compile.py", "tests/layers/test_device.py",
         "tests/layers/test_contract.py", f"{DEVICE}/test_pycaffe.py", f"{DEVICE}/test_training.py",
         f"{DEVICE}/test_batch_norm.py", f"{DEVICE}/test_resume.py", f"{DEVICE}/test_strategies.py")
"""What shows most comes first."""
SECONDS = 240.0
NO_TESTS = 5
"""pytest's exit code where a file has no test to run."""


def run_file(file: str, seconds: float, junit: Path) -> str:
    """Run one file's tests.

    Args:
        file: the file, from the repository's root.
        seconds: after which it is ended.
        junit: where pytest leaves its results.

    Returns:
        why it failed beyond what the results say; empty where it ran to its end.
    """
    command = [sys.executable, "-m", "pytest", "-q", file, f"--junitxml={junit}"]
    environment = os.environ | {"SCAFFE_TEST_GPU": "1", "SCAFFE_TEST_DEVICE": "cuda"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # the launchers of MPI jobs too
        process.wait()
        return f"took more than {seconds:g} s"
    return "" if code in (0, NO_TESTS) or junit.exists() else f"ended with exit code {code}"


def suite_of(file: str, junit: Path, seconds: float, fault: str) -> ElementTree.Element:
    """One file's results as a JUnit suite; where there are none, its one failure."""
    if not fault and junit.exists():
        found = ElementTree.parse(junit).getroot()
        suite = found if found.tag == "testsuite" else found[0]
        suite.set("name", file)
        return suite
    numbers = {"tests": str(int(bool(fault))), "failures": str(int(bool(fault))), "errors": "0", "skipped": "0"}
    suite = ElementTree.Element("testsuite", {"name": file, "time": f"{seconds:.1f}", **numbers})
    if fault:
        case = ElementTree.SubElement(suite, "testcase", {"classname": file, "name": "the whole file"})
        ElementTree.SubElement(case, "failure", {"message": fault}).text = fault
    return suite


def run(files: Sequence[str], seconds: float, junit: Path | None) -> int:
    """Run files one after the other, print a line for each; the exit code: 1 where something failed."""
    root, n_failed = ElementTree.Element("testsuites"), 0
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            results, start = Path(folder, f"{number}.xml"), time.monotonic()
            fault = run_file(file, seconds, results)
            took = time.monotonic() - start
            suite = suite_of(file, results, took, fault)
            root.append(suite)
            n_bad = sum(int(suite.get(name, "0")) for name in ("failures", "errors"))
            n_failed += n_bad
            print(f"{file}: {suite.get('tests')} tests, {n_bad} failed, {suite.get('skipped')} skipped, {took:.0f} s"
                  f"{': ' * bool(fault)}{fault}", flush=True)
            if junit:
                ElementTree.ElementTree(root).write(junit, encoding="utf-8", xml_declaration=True)
    return int(n_failed > 0)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--junit", type=Path, help="file for all results, written anew after each file")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one file")
    parser.add_argument("files", nargs="*", default=FILES)
    options = parser.parse_args()
    return run(options.files, options.seconds, options.junit)


if __name__ == "__main__":
    sys.exit(main())
