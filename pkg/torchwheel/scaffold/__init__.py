"""Starts a new extension: `torchwheel new`."""
