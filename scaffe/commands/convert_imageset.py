"""Turn a list of image files into a database, with Caffe's arguments."""

from data.tools.convert_imageset import main

__all__ = ["main"]
