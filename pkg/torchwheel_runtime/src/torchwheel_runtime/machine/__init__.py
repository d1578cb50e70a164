"""Facts of this machine: Python, torch, driver, GPUs, compilers, toolkits."""
