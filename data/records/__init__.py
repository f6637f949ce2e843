"""Records: how samples are encoded, decoded and transformed."""
