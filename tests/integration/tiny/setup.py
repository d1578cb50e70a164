from pathlib import Path

from setuptools import setup

from torchwheel_runtime.builder.setuptools_ext import setup_arguments

HERE = Path(__file__).resolve().parent
setup(**setup_arguments(HERE, packages=".", description="tiny/extension.py"))
