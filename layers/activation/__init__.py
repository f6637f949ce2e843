"""Activation functions, element by element."""
