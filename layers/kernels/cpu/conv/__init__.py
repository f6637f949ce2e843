"""Convolutions on the CPU: the choice of a kernel for a geometry, and the kernels that are not oneDNN's."""
