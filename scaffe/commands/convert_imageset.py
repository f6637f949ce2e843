"""Turn a list of image files into an LMDB, with Caffe's arguments."""

from data.tools.convert_imageset import main

__all__ = ["main"]
