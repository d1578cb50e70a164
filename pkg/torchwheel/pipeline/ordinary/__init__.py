"""Builds an extension that is not ours: any project with an ordinary setup.py, for one torch."""
