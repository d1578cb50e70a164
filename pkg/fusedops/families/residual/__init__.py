"""Sums with a residual, and rows along the last dimension."""
