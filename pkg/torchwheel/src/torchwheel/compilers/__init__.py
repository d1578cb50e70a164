"""Compile steps of a project that is not ours: listed, divided, cached, given to a cluster."""
