"""Threads on which kernels run in parts."""
