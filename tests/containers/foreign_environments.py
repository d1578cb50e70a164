"""What pip and `torchwheel install` take for an ordinary project's wheels, in real environments.

    python tests/containers/foreign_environments.py PROJECT/dist FOLDER

For each wheel: a virtual environment with its Python and its torch of PyPI, in FOLDER/TORCH-PYTHON
(one that is there is used), an index served from the dist, and in the environment pip and
`torchwheel install`, which must take that wheel. Then the package is imported.
uv must find the Pythons: on the PATH, or where it can download them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchwheel.index.serve import serve_in_background

PKG = Path(__file__).parents[2] / "pkg"
UV = (sys.executable, "-m", "uv")
LATER = "3.12"
"""For a wheel of the limited API: a later Python than its own."""
TOOLS = ("packaging", "psutil", "pyelftools", "rich", "ninja")  # torchwheel's own requirements


@dataclass(frozen=True)
class Case:
    """A wheel, and the environment that it is for."""

    wheel: Path
    python: str  # "3.11"
    torch: str  # "2.6"
    toolkit: str  # "cu124"

    @property
    def name(self) -> str:
        """The project's."""
        return parse_wheel_filename(self.wheel.name)[0]

    @property
    def group(self) -> str:
        """The index that pip is told of."""
        return f"{self.toolkit}/torch{self.torch}"


def cases(dist: Path) -> Iterator[Case]:
    """The wheels of a dist, by their names."""
    for wheel in sorted(dist.glob("*.whl")):
        _, version, _, tags = parse_wheel_filename(wheel.name)
        toolkit, _, torch = str(version.local).partition("torch")
        tag = next(iter(tags))
        digits = tag.interpreter.removeprefix("cp")
        python = f"{digits[0]}.{digits[1:]}" if tag.abi == tag.interpreter else LATER
        yield Case(wheel, python, torch, toolkit)


def environment(case: Case, folder: Path) -> Path:
    """The Python of an environment with the torch of a wheel."""
    root = folder / f"torch{case.torch}-cp{case.python.replace('.', '')}"
    python = root / "bin" / "python"
    if not python.exists():
        run([*UV, "venv", "--quiet", "--seed", "--python", case.python, str(root)])
        torch = f"torch=={case.torch}.*"
        run([*UV, "pip", "install", "--quiet", "--python", str(python), torch, "numpy"])
    run([*UV, "pip", "install", "--quiet", "--python", str(python), *TOOLS])
    return python


def run(command: Sequence[str], **variables: str) -> str:
    """The output of a command that must succeed."""
    environ = {**os.environ, **variables}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def torch_of(python: Path) -> str:
    """The release of torch in an environment."""
    asked = "from importlib.metadata import version; print(version('torch'))"
    return run([str(python), "-c", asked]).strip()


def check(case: Case, python: Path, address: str) -> None:
    """pip and `torchwheel install` take the case's wheel, and its package can be imported."""
    before = torch_of(python)
    pip = [str(python), "-m", "pip", "--isolated", "install", "--quiet", "--index-url"]
    pip += [f"{address}/{case.group}", "--no-deps", "--force-reinstall", case.name]
    report = json.loads(run([*pip, "--dry-run", "--report", "-"]))
    (chosen,) = (entry["download_info"]["url"] for entry in report["install"])
    assert chosen.rpartition("/")[2].replace("%2B", "+") == case.wheel.name, chosen

    ours = [str(python), "-m", "torchwheel.cli", "install", case.name, "--index", address]
    # The folder of torchwheel alone: the environment's packages are its own.
    found = json.loads(run([*ours, "--json"], PYTHONPATH=str(PKG)))
    assert found["chosen"]["file"] == case.wheel.name
    package = case.name.replace("-", "_")
    imported = run([str(python), "-c", f"import torch, {package}; print({package}.__file__)"])
    assert str(python.parents[1]) in imported
    assert torch_of(python) == before
    rejected = [wheel for wheel in found["wheels"] if not wheel["accepted"]]
    print(f"python {case.python} torch {before}: {case.wheel.name}; rejected: {len(rejected)}")


def check_all(dist: Path, folder: Path) -> int:
    """Check each wheel of a dist; how many there are."""
    found = list(cases(dist))
    with serve_in_background(dist / "index") as address:
        for case in found:
            check(case, environment(case, folder), address)
    return len(found)


if __name__ == "__main__":
    print(check_all(Path(sys.argv[1]), Path(sys.argv[2])))
