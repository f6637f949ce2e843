"""Kernels: one module a backend, with the same names. A layer takes them from its context and asks no further."""
