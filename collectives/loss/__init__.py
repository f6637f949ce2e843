"""Ranks that are lost: how the others find out, and that none of them waits for one that has found out already."""
