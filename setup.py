"""fusedops' native build; the logic is torchwheel's, taken from this tree."""

import sys
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "pkg" / "torchwheel_runtime" / "src"))

from torchwheel_runtime.builder.setuptools_ext import setup_arguments  # noqa: E402

setup(**setup_arguments(HERE, packages="pkg", description="pkg/fusedops/extension.py"))
