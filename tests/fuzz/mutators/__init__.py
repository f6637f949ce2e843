"""How inputs are damaged: a mutator takes a random.Random and bytes (or text, or a message), and gives others."""
