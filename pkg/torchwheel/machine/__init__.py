"""What this machine is: Python, torch, driver, GPUs, compilers, toolkits. Facts; no judgement."""
