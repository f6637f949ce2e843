"""The two tiers of memory, and what carries arrays between them."""
