"""Observers of the training loop, one a file."""
