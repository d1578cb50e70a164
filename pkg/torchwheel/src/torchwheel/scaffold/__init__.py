"""`torchwheel new`: starts a new extension."""
