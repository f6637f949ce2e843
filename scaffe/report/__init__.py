"""Reads the logs and traces of runs, and shows them together on one page."""
