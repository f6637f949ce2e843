"""Collectives on very large buffers over MPI: planned by pure functions, run in pipelined chunks."""
