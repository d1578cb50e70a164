"""`torchwheel install`: picks the wheel of an index that fits this machine and its torch."""
