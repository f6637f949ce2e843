"""Collectives on GPU memory: the communication stream, transports, CUDA IPC within a node, NCCL as a peer."""
