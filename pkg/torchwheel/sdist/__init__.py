"""Builds wheels of other people's extensions: any project with a setup.py, for one torch."""
