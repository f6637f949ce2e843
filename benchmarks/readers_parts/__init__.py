"""The parts of ``benchmarks/readers.py``."""
