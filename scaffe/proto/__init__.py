"""Caffe's messages: ``from scaffe.proto import caffe_pb2``."""
