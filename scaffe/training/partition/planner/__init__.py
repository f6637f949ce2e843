"""How a net is best shared among ranks: pure arithmetic on its layers and the machine."""
