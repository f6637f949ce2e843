"""The flags that strategies add to ``scaffe train``, and the refusal of a flag that the chosen one does not have."""

from __future__ import annotations

from argparse import Namespace

from scaffe.errors import UsageError
from scaffe.flags import Flags
from scaffe.flags.flag import Flag
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.choice import AUTO, CHOICES


def add_flags(flags: Flags) -> None:
    """Add ``-strategy``, and the flags of all strategies."""
    flags.flag("strategy", AUTO, f"what is sent when: {AUTO}, {', '.join(strategies.names())}", metavar="NAME")
    for name in strategies.names():
        strategies.get(name).flags(flags)


def check_flags(options: Namespace) -> None:
    """Refuse a flag that the chosen strategy does not have, if its value is not the default.

    Args:
        options: the values of all flags. ``-strategy auto`` accepts the flags of every strategy that it may choose.

    Raises:
        UsageError: one line that names the flag and the strategies that have it.
    """
    own = {name: _flags_of(name) for name in strategies.names()}
    of_one_type = tuple(name for name in strategies.names() if strategies.get(name).solver_type)  # auto may mean them
    chosen = (*CHOICES, *of_one_type) if options.strategy == AUTO else (options.strategy,)
    if not set(chosen) <= set(own):
        return  # an unknown one is refused where it is looked up
    for flag in {flag.name: flag for flags in own.values() for flag in flags.values()}.values():
        if getattr(options, flag.name) != flag.default and not any(flag.name in own[name] for name in chosen):
            users = ", ".join(name for name, flags in own.items() if flag.name in flags)
            raise UsageError(f"train: -{flag.name} is a flag of {users}, not of -strategy {options.strategy}",
                             everywhere=True)


def _flags_of(name: str) -> dict[str, Flag]:
    flags = Flags("train", "")
    strategies.get(name).flags(flags)
    return flags.flags
