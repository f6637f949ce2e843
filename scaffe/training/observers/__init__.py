"""Observers of the training loop, one per file."""
