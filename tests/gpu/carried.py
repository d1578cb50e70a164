"""Wheels of dist/, installed for the running Python with what they are published with."""

from pathlib import Path

from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke.requirements import bundled_with
from torchwheel.smoke.trial_environment import Environment, running_environment

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
BITS = Path(__file__).with_name("bits.py")


def installed(wheel: Path, folder: Path) -> Environment:
    """The running interpreter, with the wheel and its bundled packages below `folder`."""
    folder.mkdir(exist_ok=True)
    wheels = [read_wheel(path) for path in (wheel, *bundled_with(wheel))]
    return running_environment(wheels, ("fusedops", "torchwheel"), folder)
