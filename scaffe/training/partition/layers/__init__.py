"""Layers and moves of a net that ranks share."""
