"""`python -m fusedops`: what the operators run on here, why, and how to fix it."""

import sys

from torchwheel.doctor.examine import main

sys.exit(main(["fusedops", *sys.argv[1:]]))
