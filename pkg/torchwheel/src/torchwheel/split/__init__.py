"""Labelled wheels of anybody's wheel: `torchwheel split`."""
