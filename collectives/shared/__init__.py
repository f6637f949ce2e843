"""Collectives within one node: ranks map each other's buffers and work on them directly, without a message."""
