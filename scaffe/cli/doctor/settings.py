"""Settings: the variables of the environment that scaffe reads and that are set, with what is wrong of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from scaffe import environment
from scaffe.cli.doctor.finding import BROKEN, FINE, SLOWER, Finding
from scaffe.errors import UserError

OTHERS = ("OMP_NUM_THREADS", "NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR", "GLOG_minloglevel", "GLOG_log_dir")
"""Variables of others that change what scaffe does."""


def check(given: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """What is set, one line each, in the order of the table; nothing where nothing is.

    Args:
        given: the variables to look at.
    """
    for variable in environment.VARIABLES:
        if given.get(variable.name) or (variable.may_be_empty and variable.name in given):
            yield _judged(variable, given)
    for name in OTHERS:
        if given.get(name):
            yield Finding(FINE, "settings", f"{name}={given[name]}")
    for name in environment.unknown(given):
        yield Finding(SLOWER, "settings", f"{name}={given[name]}: scaffe reads no such variable", f"unset {name}")


def _judged(variable: environment.Variable[object], given: Mapping[str, str]) -> Finding:
    try:
        variable.get(given)
    except UserError as error:
        return Finding(BROKEN, "settings", str(error), f"unset {variable.name}")
    return Finding(FINE, "settings", f"{variable.name}={given[variable.name]}: {variable.meaning}")
