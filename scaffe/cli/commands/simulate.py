"""Model reductions on up to thousands of GPUs.

S-Caffe's Figures 11 and 12 from the cost model.
"""

from scaffe.collectives.model.paper_figures import main

GROUP = "Collectives"
__all__ = ["main"]
