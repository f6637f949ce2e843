"""Caffe's binary files: trained weights, solver states, means. Written whole or not at all."""

from scaffe.files.means import read_mean, write_mean
from scaffe.files.solverstate import SolverState, read_state, write_state
from scaffe.files.weights import read_model, write_model

__all__ = ["SolverState", "read_mean", "read_model", "read_state", "write_mean", "write_model", "write_state"]
