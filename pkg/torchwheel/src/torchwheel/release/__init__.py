"""`torchwheel assemble`: verifies the artifacts of a release and writes it as one folder."""
