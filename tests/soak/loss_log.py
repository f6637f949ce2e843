"""What came of runs whose ranks die, kept line by line, so that a soak can be stopped and go on."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

UNDISTURBED = "undisturbed"


@dataclass
class Outcome:
    """Of one run or, added up, of several.

    Attributes:
        killed: ranks killed or stopped while it trained.
        came: how often ranks came in for lost ones.
        n_unmanned: runs of which only servers were left, so that they ended with a line.
        seconds: from a kill (from the deadline, for a rank that was stopped) to the line that says how many ranks go
            on; one for each recovery.
        accuracies: at the end.
        wrong: what went wrong.
        said: all lines, where they are worth reading.
    """

    killed: int = 0
    came: int = 0
    n_unmanned: int = 0
    seconds: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    said: str = ""

    def add(self, other: Outcome) -> None:
        """Counts another run."""
        self.killed += other.killed
        self.came += other.came
        self.n_unmanned += other.n_unmanned
        self.seconds += other.seconds
        self.accuracies += other.accuracies
        self.wrong += other.wrong


class Log:
    """The runs so far.

    Args:
        path: a file of a line of JSON each; empty for none. What is there counts.

    Attributes:
        runs: one for each line.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        is_there = self._path is not None and self._path.exists()
        self.runs: list[dict[str, Any]] = [json.loads(line) for line in Path(path).read_text().splitlines()
                                           ] if is_there else []

    def note(self, strategy: str, n_ranks: int, kind: str, found: Outcome, keep: str = "") -> None:
        """One more.

        Args:
            strategy, n_ranks, kind: of the run.
            found: what came of it.
            keep: a folder for what it said, where that is worth reading.
        """
        said = found.said or "\n".join(found.wrong)
        self.runs.append({"strategy": strategy, "n_ranks": n_ranks, "kind": kind} | asdict(found) | {"said": ""})
        if self._path is not None:
            with self._path.open("a") as log:
                log.write(json.dumps(self.runs[-1]) + "\n")
        if keep and said:
            Path(keep).mkdir(exist_ok=True)
            (Path(keep) / f"{strategy} {n_ranks} {kind} {time.time():.0f}".replace(" ", "_")).write_text(said)

    def _of(self, strategy: str, n_ranks: int) -> list[dict[str, Any]]:
        return [run for run in self.runs if (run["strategy"], run["n_ranks"]) == (strategy, n_ranks)]

    def n_killed(self, strategy: str, n_ranks: int) -> int:
        """How many ranks have been killed or stopped."""
        return sum(run["killed"] for run in self._of(strategy, n_ranks))

    def n_of(self, strategy: str, n_ranks: int, kind: str) -> int:
        """How many runs of a kind there are."""
        return sum(run["kind"] == kind for run in self._of(strategy, n_ranks))

    def n_disturbed(self, strategy: str, n_ranks: int) -> int:
        """How many runs there are in which ranks died."""
        return sum(not run["kind"].startswith(UNDISTURBED) for run in self._of(strategy, n_ranks))


def depends_on_nodes(strategy: str) -> bool:
    """Whether the accuracy depends on which rank lies on which node: where ranks are not in step."""
    return strategy.startswith(("ssp", "downpour"))
