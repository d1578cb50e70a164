"""Provides toolkits and torch's headers, each file by its hash."""
