"""The code that all layers share: blobs, the interface of a layer, the registry, base classes."""
