"""Convolutions on the CPU: which kernel computes which, and those that are not oneDNN's."""
