"""Planners, one a file: module `<collective>_<shape>` has `plan(rank, call)`; trees also take the tree."""
