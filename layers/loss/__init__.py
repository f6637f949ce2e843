"""Losses, and the accuracy beside them."""
