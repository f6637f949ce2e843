"""Layers of a net that ranks share, and redistributions between them."""
