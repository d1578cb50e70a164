"""`python -m fusedops`: what the operators run on here, why, and how to fix it."""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # the working folder, whose files are not the doctor's to import

from torchwheel_runtime.doctor import main

sys.exit(main("fusedops", sys.argv[1:]))
