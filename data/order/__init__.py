"""Decides which rank reads which record, and when. It depends on rank, number of ranks and seed alone."""
