"""Samples in, batches out: sources, order, transformations, readers."""
