"""Reads and writes Caffe's files: trained weights, solver states, means, prototxt. Files are written atomically."""

from scaffe.files.blobs import read_mean, write_mean
from scaffe.files.hdf5 import StoredLayer
from scaffe.files.solverstate import SolverState, read_state, write_state
from scaffe.files.weights import model_layers, read_model, upgrade_model, write_model
from scaffe.input_files import checksum
from scaffe.proto.text import write_text

__all__ = ["SolverState", "StoredLayer", "checksum", "model_layers", "read_mean", "read_model", "read_state",
           "upgrade_model", "write_mean", "write_model", "write_state", "write_text"]
