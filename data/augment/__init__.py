"""Augmentation of images with boxes around objects, and resizing to one size (SSD's fork of Caffe)."""
