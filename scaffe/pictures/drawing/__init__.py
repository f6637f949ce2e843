"""Pictures of nets: a graph of boxes, its layout in layers, and its writers for SVG and PNG."""
