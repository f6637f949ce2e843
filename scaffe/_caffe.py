"""Caffe's ``caffe._caffe``, the names that its C++ module gives to Python."""

import scaffe
from scaffe import log
from scaffe.layers.python import BlobVec, RawBlobVec
from scaffe.layers.python import UserBlob as Blob
from scaffe.layers.python import UserLayer as Layer
from scaffe.proto.caffe_pb2 import LayerParameter, SolverParameter
from scaffe.pycaffe.net import Net
from scaffe.pycaffe.process import (
    NCCL,
    Timer,
    has_nccl,
    init_log,
    layer_type_list,
    set_device,
    set_logging_disabled,
    set_mode_cpu,
    set_mode_gpu,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from scaffe.pycaffe.solver import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    Solver,
    get_solver,
)

__version__ = scaffe.__version__
BoolVec = DtypeVec = IntVec = LayerVec = NetVec = StringVec = list

__all__ = ["NCCL", "AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "Blob", "BlobVec", "BoolVec", "DtypeVec", "IntVec",
           "Layer", "LayerParameter", "LayerVec", "NesterovSolver", "Net", "NetVec", "RMSPropSolver", "RawBlobVec",
           "SGDSolver", "Solver", "SolverParameter", "StringVec", "Timer", "__version__", "get_solver", "has_nccl",
           "init_log", "layer_type_list", "log", "set_device", "set_logging_disabled", "set_mode_cpu", "set_mode_gpu",
           "set_multiprocess", "set_random_seed", "set_solver_count", "set_solver_rank", "solver_count", "solver_rank"]
