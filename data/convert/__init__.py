"""Converters: other people's archives into Caffe's databases."""
