"""Vectors that lie on shards under names: commands that change them, and scalars that come back."""
