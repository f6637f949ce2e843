"""Benchmarks of collectives, in the manner of the OSU micro-benchmarks: `python -m scaffe bench reduce`."""
