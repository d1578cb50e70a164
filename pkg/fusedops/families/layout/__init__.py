"""Heads padded with zeros and laid out for attention."""
