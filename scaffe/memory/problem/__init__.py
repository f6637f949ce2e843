"""From a net to the arrays that a memory plan is about: lengths, lifetimes, costs."""
