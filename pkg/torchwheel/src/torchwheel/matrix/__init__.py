"""`matrix.yaml`: its model, its checks, and the variants it declares."""
