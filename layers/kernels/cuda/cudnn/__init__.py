"""Kernels by NVIDIA's cuDNN, through its Frontend."""
