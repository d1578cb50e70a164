"""Facts read from a finished wheel: its archive, its metadata, its libraries, their GPU code."""
