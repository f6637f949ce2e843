"""Sums, products and reductions of blobs."""
