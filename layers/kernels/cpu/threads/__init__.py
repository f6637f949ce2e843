"""Runs kernels in parts on threads, with and without the interpreter."""
