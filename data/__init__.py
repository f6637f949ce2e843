"""Reads training data: sources of samples, their order, their transformations, and the threads that make batches."""
