"""The torch of an environment: what it was built with, and what it loads into a process."""

import dataclasses
import json
import re
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.machine.torch_model import Torch
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.importing import run

_CHILD = Path(__file__).with_name("installed_child.py")
_ARCH = re.compile(r"sm_(\d+)(\d[af]?)")


@dataclasses.dataclass(frozen=True)
class InstalledTorch:
    """A torch that can be imported.

    Attributes:
        built: its version, and what it was built with.
        archs: the archs it holds machine code for, e.g. ("7.5", "8.0").
        loaded: file names of the libraries in a process that has imported it.
    """

    built: Torch
    archs: tuple[str, ...]
    loaded: frozenset[str]

    @property
    def release(self) -> str:
        """E.g. "2.11.0": PyPI's files of torch do not have the local version in their names."""
        return self.built.version.partition("+")[0]


def torch_of(env: Environment, cwd: Path) -> InstalledTorch:
    """Ask the environment's Python; `cwd` is any folder without a `torch` in it."""
    done = run(env, ["-c", _CHILD.read_text(encoding="utf-8")], cwd)
    try:
        facts = json.loads(done.stdout.splitlines()[-1])
        built = {name: facts[name] for name in ("version", "cuda", "hip", "old_abi")}
        return InstalledTorch(
            built=Torch(folder=Path(facts["folder"]), **built),
            archs=tuple(_arch(flag) for flag in facts["archs"] if _ARCH.fullmatch(flag)),
            loaded=frozenset(facts["loaded"]),
        )
    except (ValueError, LookupError, TypeError) as error:
        said = " ".join(done.stderr.split()[-40:]) or "it said nothing"
        raise TorchwheelError(f"torch cannot be imported in {env.site}: {said}") from error


def _arch(flag: str) -> str:
    """An arch as the matrix writes it: "9.0a" for sm_90a."""
    found = _ARCH.fullmatch(flag)
    return f"{found[1]}.{found[2]}" if found else flag
