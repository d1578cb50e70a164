"""Layer norm and RMS norm, with what is added before them."""
