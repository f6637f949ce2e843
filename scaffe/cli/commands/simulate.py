"""Model reductions on many GPUs: S-Caffe's Figures 11 and 12, up to 4,096 ranks."""

from scaffe.collectives.model.paper_figures import main

__all__ = ["main"]
