"""What the bits of a sum depend on, by the algorithm's name."""

from __future__ import annotations

from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.registry import modules


def is_divisible(algorithm: str, n_ranks: int) -> bool:
    """Whether reductions of the parts of an array, one by one, give the bits of one reduction of all of it.

    On two ranks they do whoever adds, since two numbers have one sum. On more they do where the algorithm is one of
    ours that says so, and not where ``auto`` may take another one for another length.

    Args:
        algorithm: a name, as `parse` takes it.
        n_ranks: that reduce.

    Raises:
        CommError: nothing is called that.
    """
    asked = parse(algorithm)
    if n_ranks <= 2 and not asked.wire:
        return True
    if asked.selection or asked.library or asked.is_split:
        return False
    module = None if asked.pattern is None else modules().get(("reduce", asked.pattern.shape))
    return asked.pattern is None or (module is not None and not getattr(module, "SUM_DEPENDS_ON", ()))
