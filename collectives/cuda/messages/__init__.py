"""Point-to-point messages of device memory: through a CUDA-aware MPI, or staged through pinned host memory."""
