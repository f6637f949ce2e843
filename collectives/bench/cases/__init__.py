"""One collective a file: whether it takes a root, whether it sums, and what each rank must have afterwards.

`expected` gives rows (start, stop, source) for this rank: elements [start, stop) must be the values of rank `source`,
or the sum over ranks where that is None.
"""
