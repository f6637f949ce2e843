"""The commands of ``python -m scaffe``: one a file, with ``main(argv) -> int``, found by its name."""
