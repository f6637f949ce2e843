"""Collectives of one node over CUDA IPC: ranks map one another's device memory and work on it directly."""
