"""Find what is missing or slow, say what to type.

Exit code 1 if several ranks cannot train here, else 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from scaffe.cli.doctor import job, machine
from scaffe.cli.doctor.machine import BROKEN, Finding, table
from scaffe.collectives.launch import launched
from scaffe.errors import UsageError
from scaffe.flags import Flags

GROUP = "This machine"
CHECKS = (machine.check_settings, machine.check_processor, job.check_job, job.check_srun, machine.check_folders,
          machine.check_packages, machine.check_gpu)


def main(argv: list[str]) -> int:
    """``doctor``. Returns the exit code.

    Raises:
        UsageError: it runs as a rank of a job.
    """
    Flags("doctor", __doc__ or "").parse(argv)
    if launched():
        raise UsageError("doctor starts ranks by itself: run it without mpirun or srun")
    findings = list(_look())
    print("\n".join(table(findings)), flush=True)
    return int(any(finding.state == BROKEN for finding in findings))


def _look() -> Iterator[Finding]:
    for check in CHECKS:
        yield from check()
