"""Attention over a cache of keys and values."""
