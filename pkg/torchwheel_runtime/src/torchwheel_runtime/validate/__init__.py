"""Rules that tell whether a library, torch, a toolkit, GPUs and the driver fit together."""
