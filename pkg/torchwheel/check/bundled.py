"""Reads a bundled package: a wheel for every machine, published with those of the project."""

from pathlib import Path

from packaging.tags import parse_tag

from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import Wheel, extract, read_wheel

TAG = "py3-none-any"


def read_bundled(path: Path) -> Wheel:
    """The facts of a companion's wheel; one with machine code, or for some machines, is refused."""
    wheel = read_wheel(path)
    with extract(wheel) as found:
        if found:
            raise TorchwheelError(
                f"{path.name}: a companion is pure Python, but {found[0].member} is machine code"
            )
    for tags in (wheel.tags, wheel.wheel_tags):
        if tags != parse_tag(TAG):
            came = " ".join(sorted(map(str, tags)))
            raise TorchwheelError(f"{path.name}: a companion has the tag {TAG}; got {came}")
    return wheel
