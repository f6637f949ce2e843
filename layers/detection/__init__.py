"""Layers of object detection: the R-CNN family's, one family a file."""
