"""Caffe's data tools as ``main(argv)`` functions, one module a tool, with Caffe's names and argument order."""
