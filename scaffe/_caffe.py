"""Caffe's ``caffe._caffe``, the names that its C++ module gives to Python."""

import scaffe
from scaffe import log
from scaffe.layers.python import BlobVec, RawBlobVec
from scaffe.layers.python import UserBlob as Blob
from scaffe.layers.python import UserLayer as Layer
from scaffe.proto.caffe_pb2 import LayerParameter, SolverParameter
from scaffe.pycaffe.solver import Solver

__version__ = scaffe.__version__
BoolVec = DtypeVec = IntVec = LayerVec = NetVec = StringVec = list
_OURS = [name for home in ("net", "process", "solver") for name in scaffe._HOMES[f"scaffe.pycaffe.{home}"]]
globals().update({name: getattr(scaffe, name) for name in _OURS})

__all__ = ["Blob", "BlobVec", "BoolVec", "DtypeVec", "IntVec", "Layer", "LayerParameter", "LayerVec", "NetVec",
           "RawBlobVec", "Solver", "SolverParameter", "StringVec", "__version__", "log"]
__all__ += _OURS
