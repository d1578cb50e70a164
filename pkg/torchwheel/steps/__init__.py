"""Compile steps of other projects: listed, divided among jobs, cached, or given to a cluster."""
