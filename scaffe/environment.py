"""scaffe's own environment variables: meaning, values and default of each. Only this module reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from scaffe.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One variable. Unset or empty it has its default.

    Attributes:
        name: with SCAFFE_ in front.
        meaning: its purpose, in a few words.
        values: the values that it takes, as an error names them.
        parse: converts a text to the value; raises ValueError.
        default: the value without it.
        may_be_empty: whether an empty text is a value too.
    """

    name: str
    meaning: str
    values: str
    parse: Callable[[str], T]
    default: T
    may_be_empty: bool = False

    def get(self, environment: Mapping[str, str] = os.environ) -> T:
        """The value. Raises UserError, with the variable's name and range, if the text is not among its values."""
        text = environment.get(self.name)
        if text is None or not (text or self.may_be_empty):
            return self.default
        try:
            return self.parse(text)
        except ValueError:
            raise UserError(f"{self.name}={text}: expected {self.values} ({self.meaning})") from None


def _whole(least: int, most: int) -> tuple[str, Callable[[str], int]]:
    def parse(text: str) -> int:
        number = int(text) if re.fullmatch("[0-9]{1,19}", text) else -1
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return f"a whole number from {least:,} to {most:,}", parse


def _seconds(most: int) -> tuple[str, Callable[[str], float]]:
    def parse(text: str) -> float:
        number = float(text) if re.fullmatch(r"[0-9.]+(e[+-]?[0-9]+)?", text) else 0.0
        if not 0 < number <= most:
            raise ValueError(text)
        return number

    return f"seconds, more than 0 and at most {most:,}", parse


def _one_of(*words: str) -> tuple[str, Callable[[str], str]]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return " or ".join(words), parse


def _switch() -> tuple[str, Callable[[str], bool]]:
    values, parse = _one_of("0", "1")
    return values, lambda text: parse(text) == "1"


DEADLINE = Variable("SCAFFE_DEADLINE", "after which a rank that is missing counts as lost", *_seconds(10**9), 900.0)
TABLE = Variable("SCAFFE_TABLE", "preferred to the shipped table by auto", "path of a JSON table", str, "")
RANKS_PER_NODE = Variable("SCAFFE_RANKS_PER_NODE", "ranks that count as a node", *_whole(1, 10**6), 0)
THREADS = Variable("SCAFFE_THREADS", "threads that a rank computes with", *_whole(1, 4096), 0)
CUDA_IPC = Variable("SCAFFE_CUDA_IPC", "whether ranks map one another's device memory", *_switch(), True)
CUDA_PAGES = Variable("SCAFFE_CUDA_PAGES", "whether limited memory of a GPU is in pages", *_switch(), True)
CUDA_AWARE: Variable[bool | None] = Variable(
    "SCAFFE_CUDA_AWARE", "whether the MPI takes device memory", *_switch(), None)
CUDA_MULTIPROCESSORS: Variable[int | None] = Variable(
    "SCAFFE_CUDA_MULTIPROCESSORS", "that a sum over GPUs' memory fills, 0: all", *_whole(0, 10**6), None)
ONEDNN: Variable[str | None] = Variable("SCAFFE_ONEDNN", "which oneDNN is loaded, empty: none",
                                        "path of libdnnl.so.3, or nothing", str, None, may_be_empty=True)
CACHE = Variable("SCAFFE_CACHE", "where what can be made again is kept", "a folder", str, "")
BOUNDSCHECK = Variable("SCAFFE_BOUNDSCHECK", "whether kernels check every index", *_switch(), False)
TRACEBACK = Variable("SCAFFE_TRACEBACK", "a Python traceback beside an error's line", "any text", str, "")
BIND = Variable("SCAFFE_BIND", "to cores near its GPU each rank binds itself", *_one_of("gpu", "0"), "0")
SHOW_BINDING = Variable("SCAFFE_SHOW_BINDING", "each rank says its node, cores and GPUs", *_switch(), False)
HOME = Variable("SCAFFE_HOME", "the checkout that job scripts use", "a folder", str, "")
LAUNCHER = Variable("SCAFFE_LAUNCHER", "what starts a SLURM job's ranks", *_one_of("auto", "srun", "mpirun"), "auto")

VARIABLES: tuple[Variable[object], ...] = tuple(
    found for found in globals().copy().values() if isinstance(found, Variable))
OF_TESTS = ("SCAFFE_TEST_", "SCAFFE_STANDIN", "SCAFFE_BVLC")  # what names begin with that tests alone read


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Look at all of them before work begins. Raises UserError for the first that has a value that it cannot have."""
    for variable in VARIABLES:
        variable.get(environment)


def unknown(environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Names of variables that look as if they were scaffe's, and which nobody reads."""
    known = {variable.name for variable in VARIABLES}
    for name in sorted(environment):
        if name.startswith("SCAFFE_") and name not in known and not name.startswith(OF_TESTS):
            yield name
