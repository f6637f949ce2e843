"""Names of the types that activations can have."""

PRECISIONS = ("fp32", "bf16", "fp16")
"""What ``-precision`` and ``set_precision`` take; fp16 on GPUs only."""
