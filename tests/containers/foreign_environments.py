"""What pip and `torchwheel install` take for an ordinary project's wheels, in real environments.

    python tests/containers/foreign_environments.py PROJECT/dist FOLDER

For each wheel: a virtual environment with its Python and its torch of PyPI, in FOLDER/TORCH-PYTHON
(one that is there is used), an index served from the dist, and in the environment pip and
`torchwheel install`, which must take that wheel. Then the package is imported.
Where wheels of two toolkits are for one torch, `torchwheel install` takes by the name alone the one
of torch's own toolkit, and the other one where its version is named, as pip does.
uv must find the Pythons: on the PATH, or where it can download them.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from checkout import python_path
from torchwheel.index.serve import serve_in_background

UV = (sys.executable, "-m", "uv")
LATER = "3.12"
"""For a wheel of the limited API: a later Python than its own."""
VERSION = """
import importlib.util, pathlib, runpy
torch = pathlib.Path(importlib.util.find_spec("torch").origin)
facts = runpy.run_path(torch.with_name("version.py"))
print(facts["__version__"], facts["cuda"])
"""
"""Reads what torch says of itself; its import takes seconds."""
TOOLS = ("packaging", "ninja")  # torchwheel's own requirement, and what a JIT build asks for


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
    def wanted(self) -> str:
        """The project with the wheel's version in full."""
        return f"{self.name}=={parse_wheel_filename(self.wheel.name)[1]}"


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


def torch_of(python: Path) -> tuple[str, str]:
    """The release of torch in an environment, and the name of its toolkit."""
    release, cuda = run([str(python), "-c", VERSION]).split()
    return release, f"cu{cuda.replace('.', '')}"


def check(case: Case, python: Path, index: Path, address: str, *, only: bool) -> None:
    """pip and `torchwheel install` take the case's wheel, and its package can be imported.

    Args:
        case: the wheel and its environment.
        python: that of the environment.
        index: the folder of the index.
        address: where it is served.
        only: whether no other wheel is for that Python and torch.
    """
    before, toolkit = torch_of(python)
    group = f"{case.toolkit}/torch{case.torch}"
    pip = [str(python), "-m", "pip", "--isolated", "install", "--quiet", "--no-deps"]
    pip += ["--force-reinstall", "--dry-run", "--report", "-", "--index-url"]
    # A torch that was not published for a toolkit has no group there. The toolkit's own group
    # offers its wheels to those who name the version.
    if (index / group).is_dir():
        pip += [f"{address}/{group}", case.name]
    else:
        pip += [f"{address}/{case.toolkit}", case.wanted]
    report = json.loads(run(pip))
    (chosen,) = (entry["download_info"]["url"] for entry in report["install"])
    assert chosen.rpartition("/")[2].replace("%2B", "+") == case.wheel.name, chosen

    wanted = case.name if only or case.toolkit == toolkit else case.wanted
    ours = [str(python), "-m", "torchwheel", "install", wanted, "--index", address]
    # The folder of torchwheel alone: the environment's packages are its own.
    found = json.loads(run([*ours, "--json"], PYTHONPATH=python_path()))
    assert found["chosen"]["file"] == case.wheel.name
    package = case.name.replace("-", "_")
    imported = run([str(python), "-c", f"import torch, {package}; print({package}.__file__)"])
    assert str(python.parents[1]) in imported
    assert torch_of(python) == (before, toolkit)
    rejected = [wheel for wheel in found["wheels"] if not wheel["accepted"]]
    said = f"python {case.python} torch {before} {toolkit}: {wanted} is {case.wheel.name}"
    print(f"{said}; rejected: {len(rejected)}", flush=True)


def check_all(dist: Path, folder: Path) -> int:
    """Check each wheel of a dist; how many there are."""
    found, index = list(cases(dist)), dist / "index"
    shared = Counter((case.python, case.torch) for case in found)
    with serve_in_background(index) as address:
        for case in found:
            only = shared[case.python, case.torch] == 1
            check(case, environment(case, folder), index, address, only=only)
    return len(found)


if __name__ == "__main__":
    print(check_all(Path(sys.argv[1]), Path(sys.argv[2])))
