"""scaffe: a Caffe-compatible trainer on an MPI collective runtime."""

from scaffe import siblings

__version__ = "0.1.0"

siblings.prefer()
