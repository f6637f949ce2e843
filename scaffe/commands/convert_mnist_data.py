"""Turn MNIST's two files into a database, with the arguments of Caffe's tool of this name."""

from data.tools.convert_mnist_data import main

__all__ = ["main"]
