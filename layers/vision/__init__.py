"""Layers over images: convolution, pooling, cropping, resizing."""
