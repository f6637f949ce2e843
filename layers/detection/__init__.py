"""Layers of object detection: of SSD and of the R-CNN family."""
