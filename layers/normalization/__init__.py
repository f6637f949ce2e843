"""Layers that scale what passes by its own statistics."""
