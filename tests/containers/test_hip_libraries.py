"""The HIP kernel libraries of a universal wheel load beside the real HIP runtime of each image.

No AMD GPU is needed: every symbol resolves, the front end takes the library, the runtime says that
there is no device, and the reference tests pass in a process that has all of them mapped.
FUSEDOPS_RECORDS names a folder for what was found.
"""

import datetime
import json
import os
import shutil
from pathlib import Path

import pytest

from torchwheel.image import recipes
from torchwheel.image.engine import volume_options
from torchwheel.image.images import ensure_image
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline.container_options import index_options
from torchwheel.smoke.requirements import bundled_with
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.toolkit.cache import cache_folder

pytestmark = pytest.mark.containers

ROOT = Path(__file__).parents[2]
MATRIX = load(ROOT / "matrix.yaml")
SCRIPT = """
set -e
python3 -m pip install --quiet --no-deps --no-index --target /tmp/site /wheels/*.whl
cp -r /smoke /tmp/tests
cd /tmp/tests
PYTHONPATH=/tmp/site exec python3 /child.py "$@"
"""


def universal_wheel(toolkit):
    """The wheel with the kernels of a toolkit, in FUSEDOPS_DIST or dist, and their file's name."""
    dist = Path(os.environ.get("FUSEDOPS_DIST", ROOT / "dist"))
    for wheel in sorted(dist.glob("*-py3-none-*linux*_x86_64.whl")):
        claims = read_wheel(wheel).claims
        for part in claims.parts if claims else ():
            if part.name == toolkit:
                return wheel, Path(part.file).name
    pytest.skip(
        f"no universal wheel with the kernels of {toolkit} in {dist}: "
        "`nox -s wheels -- --container universal`"
    )


def image_with_torch(engine, toolkit):
    """The image that builds for a toolkit, with that Debian's own CPU torch."""
    (universal,) = select(MATRIX, ["universal"])
    (kernels,) = (part for part in universal.parts if part.library == toolkit)
    recipe = recipes.read_recipe(
        ROOT
        / "pkg"
        / "torchwheel"
        / "src"
        / "torchwheel"
        / "data"
        / "docker"
        / "emulated.Dockerfile"
    )
    built = recipes.image_of(MATRIX, kernels, ROOT)
    image = recipes.Image(f"smoke-{toolkit}", recipe, {}, {}, {"BASE_IMAGE": built})
    try:
        return ensure_image(engine, image, cache_folder(), Quiet()).reference
    except TorchwheelError as error:
        pytest.skip(f"no image with torch and {toolkit}: {error}")


@pytest.mark.nightly
@pytest.mark.parametrize(("toolkit", "soname"), [("rocm6.4", "6"), ("rocm7.2", "7")])
def test_a_hip_library_is_mapped_beside_torch(engine, image_of, tmp_path, toolkit, soname):
    wheel, file = universal_wheel(toolkit)
    image_of(toolkit.replace("rocm", "rocm-"))  # skips where it was not made
    image = image_with_torch(engine, toolkit)
    tmp_path.chmod(0o777)  # the image has a user of its own
    shutil.copytree(ROOT / "tests" / "smoke", tmp_path / "smoke")
    certificates, environ = index_options(os.environ)
    volumes = [
        *certificates,
        *((str(path.resolve()), f"/wheels/{path.name}", "ro") for path in _files(wheel)),
        (str(tmp_path / "smoke"), "/smoke", "ro"),
        (str(ROOT / "tests" / "containers" / "hip_child.py"), "/child.py", "ro"),
        (str(tmp_path), "/facts", "rw"),
    ]
    variables = [f"--env={name}={value}" for name, value in environ.items()]
    output = engine.call(
        ["run", "--rm", *variables, *volume_options(volumes), image, "bash", "-c", SCRIPT, "child"]
        + [file, "/facts/facts.json", *MATRIX.smoke.without_gpu],
        f"the reference tests beside {toolkit}",
    )
    facts = json.loads((tmp_path / "facts.json").read_text())
    _record(f"hip-{toolkit}", wheel, {"image": image, "tests": output.splitlines()[-1], **facts})
    (runtime,) = facts["hip_runtime"]
    assert f"libamdhip64.so.{soname}" in runtime
    assert facts["mapped"] == [file, "stable.so"]
    assert "hipLaunchKernel" in facts["hip_symbols_resolved"]
    assert facts["one_interface"]
    assert facts["kernels_taken"]
    assert facts["no_device"], facts["device_count"]
    assert " passed" in output.splitlines()[-1]


def _files(wheel):
    return (wheel, *bundled_with(wheel))


def _record(name, wheel, found):
    folder = os.environ.get("FUSEDOPS_RECORDS")
    if folder:
        head = {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "wheel": wheel.name,
            "sha256": sha256(wheel),
        }
        Path(folder, f"{name}.json").write_text(json.dumps({**head, **found}, indent=1) + "\n")
