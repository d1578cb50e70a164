"""Compile steps of a project that is not ours: listed, divided among jobs, found in a cache."""
