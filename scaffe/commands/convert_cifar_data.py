"""Turn CIFAR-10's binary files into databases, with Caffe's arguments."""

from data.tools.convert_cifar_data import main

__all__ = ["main"]
