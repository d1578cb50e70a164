"""A bias along the last dimension, and an activation."""
