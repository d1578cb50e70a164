"""Signed evidence: who made a file, from which commit, by which workflow."""
