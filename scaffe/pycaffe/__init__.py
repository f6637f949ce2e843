"""Caffe's Python interface over our nets and solvers (names and semantics of Caffe 1.0's python/caffe)."""
