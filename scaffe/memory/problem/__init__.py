"""From a net to the tensors that a memory plan is about: their lengths, lifetimes and costs."""
