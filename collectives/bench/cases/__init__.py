"""One collective per file: whether it takes a root, whether it reduces, and what each rank must have afterwards.

`expected(communicator, n_elems, root)` returns rows (start, stop, source) for this rank: elements [start, stop) must be
the values of rank `source`, or the sum over ranks where that is None.
"""
