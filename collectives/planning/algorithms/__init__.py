"""Planners. Each file in this folder is found by its name, so a new algorithm is one new file here.

Module `<collective>_<shape>.py` has:
    plan(rank, call): the steps of one rank (see `planning.plan`); those of shape `tree` also take the tree.
    cost(n_ranks): its stated cost (see `planning.cost`), which a test checks; for trees it takes the tree.
    NAMES: what callers call the shape, the short name first; without it, the shape is the name.
    SUM_DEPENDS_ON: for reductions, what an element's rounding depends on beside the ranks and the root: "position" in
        the buffer, length of "chunks"; without it, on nothing.
    COST_CHUNKS: how many chunks `cost` is stated for; without it, one.

From then on the simulator tests it, `bench -a NAME` runs it and `tune` measures it.
"""
