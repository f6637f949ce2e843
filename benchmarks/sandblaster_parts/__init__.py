"""Parts of ``benchmarks/sandblaster.py``."""
