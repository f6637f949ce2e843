"""Ranks that are lost: how the others find out, go on without them, or with others in their place."""
