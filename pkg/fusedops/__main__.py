"""`python -m fusedops`: what the operators run on here, why, and what mends it."""

import sys

from torchwheel.doctor.run import main

sys.exit(main(["fusedops", *sys.argv[1:]]))
