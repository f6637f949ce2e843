"""Samples in, batches out: sources, sharding, transformations, readers."""
