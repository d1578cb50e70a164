"""`torchwheel build`: wheels of third-party extensions, each for one torch and one Python."""
