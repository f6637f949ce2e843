"""Backing stores: where tensors that are offloaded lie. A disk file below host memory, page-locked host memory below a
device's."""
