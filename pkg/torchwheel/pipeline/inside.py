"""The steps that cibuildwheel runs in the container: `python -m torchwheel.pipeline.inside`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from torchwheel.pipeline.container_files import (
    BUNDLED,
    CLAIMS,
    PLAN,
    PROBE,
    VARIANT,
    account,
)
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.errors import TorchwheelError, UsageError


def finish(wheel: Path, out: Path, folder: Path = VARIANT) -> Path:
    """Repair a built wheel, write its claims into it and count what both steps used."""
    account("build", folder)
    claims = claims_file.loads((folder / CLAIMS).read_text(encoding="utf-8"), CLAIMS)
    if (folder / PLAN).exists():
        # It imports more than the image of every toolkit has.
        from torchwheel.pipeline import own_build  # noqa: PLC0415

        own_build.count_cache_use(folder)
        claims = own_build.claims_of_built(wheel, claims, folder)
    # The environment of the tests, which runs this module too, has only what the wheel requires.
    from torchwheel.pipeline.repair import finish_wheel  # noqa: PLC0415

    finished = finish_wheel(wheel, claims, out)
    account("repair", folder)
    return finished


def run_tests(project: str, arguments: Sequence[str]) -> NoReturn:
    """Become the process that imports the packages and runs their tests.

    Args:
        project: the distribution under test; those in BUNDLED are imported too.
        arguments: those of `arguments_of_tests`.
    """
    bundled = sorted(wheel.name.split("-")[0] for wheel in BUNDLED.glob("*.whl"))
    # The installed torchwheel must be imported, not the one that runs this step.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    source = (Path(__file__).parent.parent / "smoke" / "probe.py").read_text(encoding="utf-8")
    command = ["python", "-c", source, "--of", f"--facts={VARIANT / PROBE}", *arguments]
    os.execvpe("python", [*command, project, *bundled], env)  # noqa: S606 - no shell is meant


def main(arguments: Sequence[str]) -> int:
    """Run one step."""
    try:
        match arguments:
            case ["finish", wheel, out]:
                finish(Path(wheel), Path(out))
            case ["test", project, *more]:
                run_tests(project, more)
            case ["prepare", project]:
                from torchwheel.pipeline import own_build  # noqa: PLC0415

                own_build.prepare(VARIANT, Path(project))
            case ["account", step]:
                account(step)
            case _:
                raise UsageError(
                    "expected finish WHEEL FOLDER | test PROJECT … | account STEP | prepare FOLDER"
                )
    except TorchwheelError as error:
        print(f"torchwheel: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
