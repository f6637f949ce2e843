"""Fully connected layers, and tables looked up by an index."""
