"""Training in limited memory, after GeePS (Cui et al., EuroSys 2016, section 4).

Four rooms: ``problem`` (from a net to tensors, their lifetimes and costs), ``plan`` (which tensors are kept, offloaded
or recomputed: pure), ``backing`` (backing stores: a disk file below host memory, page-locked host memory below a
device's) and ``run`` (carries a plan out, and reports it).
"""
