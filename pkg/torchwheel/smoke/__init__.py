"""Smoke: install the finished wheel in a clean environment, run its tests there, write it down."""
