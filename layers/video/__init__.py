"""Layers over time, height and width: C3D's fork."""
