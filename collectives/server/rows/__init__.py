"""The buffers that a worker reads and updates, in host or device memory, and how scattered rows come into them."""
