"""Observers of the training loop."""
