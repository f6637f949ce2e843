"""Nets in other formats."""
