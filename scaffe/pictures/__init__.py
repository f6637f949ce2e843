"""Pictures: nets, timelines and scaling curves, as SVG and PNG."""
