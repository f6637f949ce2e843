"""Where a net begins and ends: layers that read data, and the one that writes it."""
