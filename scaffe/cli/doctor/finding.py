"""One thing that was looked at: whether it is as it should be, and what to type if not. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FINE, SLOWER, ABSENT, BROKEN = "ok", "slower", "absent", "broken"
"""As it should be; works but costs speed; an optional part that is not there; training cannot work like this."""


@dataclass(frozen=True)
class Finding:
    """What was found of one subject.

    Attributes:
        state: FINE, SLOWER, ABSENT or BROKEN.
        subject: what was looked at, in a word or two.
        said: what was found, in one line.
        to_type: command line that mends it; empty where there is none.
    """

    state: str
    subject: str
    said: str
    to_type: str = ""


def table(findings: list[Finding]) -> list[str]:
    """One line per finding, and below it the line to type where there is one."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<7} {finding.subject:<{width}}  {finding.said}")
        if finding.to_type:
            lines.append(f"{'':<7} {'':<{width}}  > {finding.to_type}")
    return lines
