"""Smoke: install a finished wheel in a clean environment, run its tests, write a record."""
