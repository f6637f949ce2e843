"""3x3 convolutions by Winograd's minimal filtering: our transforms around oneDNN's matrix products."""
