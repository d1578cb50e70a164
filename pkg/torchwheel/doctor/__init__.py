"""Explains an installation: what is here, what an extension runs on and why, what mends it."""
