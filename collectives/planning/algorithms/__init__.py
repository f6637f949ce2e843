"""Planners, each found by being there: a new reduction is one file here.

Module `<collective>_<shape>.py` has:
    plan(rank, call): the steps of one rank (see `planning.plan`); those of shape `tree` also take the tree.
    cost(n_ranks): what it claims to cost (see `planning.cost`), which a test counts; trees' take the tree.
    NAMES: what callers call the shape, the short name first; without it, the shape is the name.
    SUM_DEPENDS_ON: for reductions, what an element's rounding depends on beside the ranks and the root: "position" in
        the buffer, length of "chunks"; without it, on nothing.
    COST_CHUNKS: how many chunks `cost` is stated for; without it, one.

It is tested by the simulator, run by `bench -a NAME` and measured by `tune` from then on.
"""
