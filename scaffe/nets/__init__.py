"""Nets: from a prototxt to layers that run, their parameters, their memory and their weights."""
