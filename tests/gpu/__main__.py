"""All tests that a GPU can run, each file in a process of its own with a time limit, and one JUnit file of them all.

    python -m tests.gpu [--junit FILE] [--seconds N] [--jobs N] [FILE...]

Several files run at once, one for each four cores. A file that hangs or takes the interpreter down is one failure, and
the next one runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "tests/scaffe/device"
FILES = ("tests/pretend/test_real_names.py", "tests/pretend/test_real_decoder.py",
         "tests/gpu/test_collectives.py", "tests/gpu/test_decoding.py", "tests/layers/cuda/test_device_door.py",
         "tests/layers/cuda/test_backends.py", "tests/layers/cuda/test_pixels.py",
         "tests/layers/cuda/test_kernels.py", "tests/layers/cuda/test_half_losses.py",
         "tests/layers/cuda/test_batches.py", "tests/layers/cuda/test_copies.py",
         "tests/layers/cuda/test_draws.py", "tests/layers/cuda/test_updates.py",
         "tests/layers/cuda/test_convolution.py",
         "tests/layers/cuda/test_batch_norm.py", "tests/layers/cuda/test_compile.py", "tests/layers/test_device.py",
         "tests/layers/test_contract.py", f"{DEVICE}/test_pycaffe.py", f"{DEVICE}/test_training.py",
         f"{DEVICE}/test_batch_norm.py", f"{DEVICE}/test_resume.py", f"{DEVICE}/test_strategies.py",
         f"{DEVICE}/test_strategies_staged.py", f"{DEVICE}/test_limited_memory.py")
"""What shows most comes first."""
SECONDS = 240.0
CORES_A_FILE = 4
"""Some start jobs of several ranks, and all may compile kernels."""
NO_TESTS, USAGE_ERROR = 5, 4
"""pytest's exit codes where a file has no test to run, and where it is not there."""


def run_file(file: str, seconds: float, junit: Path, said: Path) -> str:
    """Run one file's tests.

    Args:
        file: the file, from the repository's root.
        seconds: after which it is ended.
        junit: where pytest leaves its results.
        said: where what it prints goes.

    Returns:
        why it failed beyond what the results say; empty where it ran to its end.
    """
    command = [sys.executable, "-m", "pytest", "-q", file, f"--junitxml={junit}"]
    environment = os.environ | {"SCAFFE_TEST_GPU": "1", "SCAFFE_TEST_DEVICE": "cuda"}
    with said.open("w") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, stdout=out, stderr=out)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # the launchers of MPI jobs too
            process.wait()
            return f"took more than {seconds:g} s"
    return "" if code in (0, NO_TESTS) or (code != USAGE_ERROR and junit.exists()) else f"ended with exit code {code}"


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


def results(files: Sequence[str], seconds: float, n_jobs: int) -> Iterator[ElementTree.Element]:
    """Run files, so many at once; what each printed, a line about it, and its suite, as they end."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(n_jobs) as threads:
        def result(number: int, file: str) -> tuple[ElementTree.Element, str]:
            junit, said, start = Path(folder, f"{number}.xml"), Path(folder, f"{number}.log"), time.monotonic()
            fault = run_file(file, seconds, junit, said)
            took = time.monotonic() - start
            suite = suite_of(file, junit, took, fault)
            counts = f"{suite.get('tests')} tests, {n_bad(suite)} failed, {suite.get('skipped')} skipped, {took:.0f} s"
            return suite, f"{said.read_text(errors='replace')}{file}: {counts}{': ' * bool(fault)}{fault}"
        for done in as_completed([threads.submit(result, *each) for each in enumerate(files)]):
            suite, text = done.result()
            print(text, flush=True)
            yield suite


def n_bad(suite: ElementTree.Element) -> int:
    """How many of its tests failed."""
    return sum(int(suite.get(name, "0")) for name in ("failures", "errors"))


def run(files: Sequence[str], seconds: float, junit: Path | None, n_jobs: int = 1) -> int:
    """Run files and write their results; the exit code: 1 where something failed."""
    root = ElementTree.Element("testsuites")
    for suite in results(files, seconds, n_jobs):
        root.append(suite)
        if junit:
            ElementTree.ElementTree(root).write(junit, encoding="utf-8", xml_declaration=True)
    return int(any(map(n_bad, root)))


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--junit", type=Path, help="file for all results, written anew after each file")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one file")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) // CORES_A_FILE),
                        help="files that run at once")
    parser.add_argument("files", nargs="*", default=FILES)
    options = parser.parse_args()
    return run(options.files, options.seconds, options.junit, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
