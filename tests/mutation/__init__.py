"""Waits, events and records of the GPU code, taken out one at a time: some test must notice each.

    python -m tests.mutation [--only WORD] [--seconds N]
"""
