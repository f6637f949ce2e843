"""Pure passes over a net's message (upgrade, filter, splits, backward plan), and the reading of prototxt files."""

from scaffe.nets.graph.backward import BackwardPlan, BackwardSpec, Exactness, exact_blobs, plan_backward
from scaffe.nets.graph.prepare import prepare, read_net, read_solver, read_solver_as_written, upgraded

__all__ = ["BackwardPlan", "BackwardSpec", "Exactness", "exact_blobs", "plan_backward", "prepare", "read_net",
           "read_solver", "read_solver_as_written", "upgraded"]
