"""The memory that the ranks of a node share: what lies in it, where, and how each rank finds it."""
