"""Compile steps of a project that is not ours: listed, divided among jobs, cached, or given to a cluster."""
