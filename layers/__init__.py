"""Maths on arrays: Caffe's layers, one family a file."""
