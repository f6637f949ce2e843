"""How images with boxes around objects are varied at random and brought to one size (SSD's fork of Caffe)."""
