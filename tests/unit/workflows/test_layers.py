"""csrc's layers include one way, and device code never sees torch."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CSRC = ROOT / "csrc"
LAYERS = ("platform", "kernels", "families", "torch")
FILES = sorted(p for p in CSRC.rglob("*") if p.suffix in {".h", ".cuh", ".cu", ".cpp"})


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def test_there_is_something_to_hold():
    assert {path.parent.name for path in FILES} >= set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CSRC)))
def test_includes_go_one_way(path):
    own = LAYERS.index(path.relative_to(CSRC).parts[0])
    for name in includes(path):
        if (CSRC / name).is_file():
            assert LAYERS.index(name.split("/")[0]) <= own, f"includes {name}"
        else:
            assert LAYERS[own] == "torch" or not re.match(r"(torch|ATen|c10)/", name), (
                f"includes {name}"
            )
            vendor = re.match(r"(cuda|hip/)", name)
            assert own == 0 or not vendor, f"includes {name}: only platform/ knows the vendor"


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".cu"], ids=lambda p: p.name)
def test_device_code_has_no_anonymous_namespace(path):
    """nvcc names it after the source's folder, so another folder would give another wheel."""
    assert not re.search(r"namespace\s*\{", path.read_text())
