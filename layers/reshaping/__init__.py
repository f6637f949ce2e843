"""Layers that join, cut, repeat or reorder blobs, or choose items from them."""
