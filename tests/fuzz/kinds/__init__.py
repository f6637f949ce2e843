"""Kinds of input, one a file."""
