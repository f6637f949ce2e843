"""Nets larger than the memory they compute in: what is kept, moved to a file, or computed again, and who does it."""
