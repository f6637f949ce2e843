"""Converters from public archives and image lists to Caffe's databases."""
