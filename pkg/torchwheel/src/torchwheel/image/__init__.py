"""Container images: which a variant needs, what is in them, and the engine that makes them."""
