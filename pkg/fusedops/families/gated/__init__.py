"""Gated linear units: the first half of the columns times an activation of the second."""
