"""Caffe's ``caffe.io``: reading images, preparing them for a net, and converting messages to arrays and back."""

from scaffe.proto import caffe_pb2
from scaffe.pycaffe.conversions import (
    array_to_blobproto,
    array_to_datum,
    arraylist_to_blobprotovector_str,
    blobproto_to_array,
    blobprotovector_str_to_arraylist,
    datum_to_array,
)
from scaffe.pycaffe.images import load_image, oversample, resize_image
from scaffe.pycaffe.transformer import Transformer

__all__ = ["Transformer", "array_to_blobproto", "array_to_datum", "arraylist_to_blobprotovector_str",
           "blobproto_to_array", "blobprotovector_str_to_arraylist", "caffe_pb2", "datum_to_array", "load_image",
           "oversample", "resize_image"]
