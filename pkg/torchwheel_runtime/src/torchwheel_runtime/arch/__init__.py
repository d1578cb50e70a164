"""GPU architectures: their names, arch lists, the toolkits that compile them, visible GPUs."""
