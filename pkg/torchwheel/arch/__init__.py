"""GPU architectures: names, what a toolkit can compile, which ones are wanted or here."""
