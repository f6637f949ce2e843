"""Layers that read data, and one that writes them."""
