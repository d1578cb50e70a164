"""Run in a process with a library: writes the results of the model, as emulated_bits.py does."""

import sys
from pathlib import Path

import emulation_plugin  # noqa: F401 - loads the library
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
from emulated_bits import dump

dump(Path(sys.argv[1]), torch.device("cpu"))
