"""What all layers share: blobs, the contract of a layer, the registry, and base classes."""
