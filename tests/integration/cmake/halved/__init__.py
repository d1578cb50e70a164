from pathlib import Path

import torch

torch.ops.load_library(Path(__file__).with_name("_C.so"))
halved = torch.ops.halved.halved
