"""Tries a wheel of another machine by emulation, in a container of that machine."""

from pathlib import Path

from torchwheel.image.build import ensure, for_machine
from torchwheel.image.engine import LABEL, Engine, volume_options
from torchwheel.image.of_variant import emulated_image
from torchwheel.matrix.resolve import Variant
from torchwheel.pipeline import inside
from torchwheel.pipeline.cibuildwheel import KEPT, OWN, TORCHWHEEL
from torchwheel.pipeline.run import Run
from torchwheel.smoke.assemble import from_files
from torchwheel.smoke.junit import chosen, pytest_arguments
from torchwheel.smoke.record import Record

_HANDLERS = Path("/proc/sys/fs/binfmt_misc")
_HANDLER = {"linux_aarch64": "qemu-aarch64", "linux_x86_64": "qemu-x86_64"}
# Names of the distributions; what Python runs the tests with. What the wheels require beside
# torch is not there: the import of an extension must do without.
_SCRIPT = f"""
set -e
python3 -m pip install --quiet --no-deps --no-index --target /tmp/site /wheels/*.whl
export PYTHONPATH=/tmp/site:{TORCHWHEEL}
cp -r /smoke /tmp/tests
cd /tmp
read -ra names <<< "$1"
python3 {TORCHWHEEL}/torchwheel/smoke/probe.py --of "${{names[@]}}" > {KEPT}/{inside.PROBE}
shift
exec python3 "$@"
"""


def try_out(run: Run, variant: Variant, engine: Engine, wheel: Path) -> Record | None:
    """The record of the smoke tests under emulation; None where that cannot be had here."""
    wanted = emulated_image(run.matrix, variant, run.root)
    if wanted is None or not (_HANDLERS / _HANDLER[variant.platform]).exists():
        return None
    image = ensure(engine, wanted, run.cache, run.progress)
    run.progress.step(f"{variant.id}: trying it by emulation")
    kept = run.kept(variant)
    volumes = (
        OWN,
        *((str(path), f"/wheels/{path.name}", "ro") for path in (wheel, *run.companions)),
        (str((run.root / run.matrix.smoke.tests).resolve()), "/smoke", "ro"),
        (str(kept), KEPT, "rw"),
    )
    names = (run.matrix.project.name, *(path.name.split("-")[0] for path in run.companions))
    command = ["run", "--rm", f"--label={LABEL}={run.id}", *for_machine(wanted.machine)]
    command += volume_options(volumes)
    command += [image.reference, "bash", "-c", _SCRIPT, "smoke", " ".join(names)]
    tests = chosen("tests", run.matrix.smoke.without_gpu)
    command += pytest_arguments(inside.KEPT / inside.JUNIT, *tests)
    log = kept / "emulated.log"
    status = 0 if engine.succeeds(command, log) else 1
    return from_files(wheel, run.companions, kept / inside.PROBE, kept / inside.JUNIT, status)
