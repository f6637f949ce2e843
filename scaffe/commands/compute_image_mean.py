"""Average the images of a database into a mean file, with Caffe's arguments."""

from data.tools.compute_image_mean import main

__all__ = ["main"]
