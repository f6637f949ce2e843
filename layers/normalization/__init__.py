"""Layers that normalise activations by their own statistics."""
