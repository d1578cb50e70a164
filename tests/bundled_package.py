"""Adds a bundled package to the small extension: a distribution that it requires."""

from pathlib import Path

# A name that no index has: theirs must not be taken for ours.
WHEEL = "tiny_helper-1.0-py3-none-any.whl"
_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "tiny-helper"
version = "1.0"
requires-python = ">=3.10"

[tool.setuptools]
packages = ["tiny_helper"]
[tool.setuptools.package-data]
tiny_helper = ["*.bin"]
"""


def add_bundled_package(project: Path) -> Path:
    """Add `parts/helper`, which tiny then imports; returns its folder."""
    folder = project / "parts" / "helper"
    (folder / "tiny_helper").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PROJECT)
    (folder / "tiny_helper" / "__init__.py").write_text("ONE = 1.0\n")
    _replace(project / "matrix.yaml", "source: .", "source: ., bundled: [parts/helper]")
    _replace(project / "pyproject.toml", '["torch"]', '["torch", "tiny-helper>=1,<2"]')
    _replace(
        project / "tiny" / "__init__.py", "import torch\n", "import tiny_helper\nimport torch\n"
    )
    _replace(
        project / "tiny" / "__init__.py", "return x * factor", "return x * factor * tiny_helper.ONE"
    )
    return folder


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path}: {old!r} expected once"
    path.write_text(text.replace(old, new))
