"""Asks pip and uv what they would install: nothing is downloaded, nothing is changed.

Every environment is a Python without packages, or with the metadata of one torch. The indexes are
on loopback, and their wheels are stubs with real names, tags, claims and requirements.
"""

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pip
import uv
from pip_rows import with_torch

from torchwheel.index.groups import groups_of
from torchwheel.index.listing import all_groups
from torchwheel.index.writer import IndexedWheel, build_index
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline.inputs import claims_of
from torchwheel_runtime.variant_format import read_labels
from wheelmaker import make_wheel

ROOT = Path(__file__).parents[2]
PYPI = "PyPI"
UPLOADED = "2026-01-01T00:00:00Z"


@dataclasses.dataclass(frozen=True)
class Question:
    """What is installed, from which index group beside PyPI, for which platform.

    Attributes:
        torch: the installed torch, e.g. "2.8.0+cu128"; None for none.
        group: the index group; PYPI for no other index than PyPI.
        wants: the requirement.
        platform: uv's name of another platform, and pip's.
        more: further options.
    """

    torch: str | None
    group: str = PYPI
    wants: str = "fusedops"
    platform: tuple[str, str] | None = None
    more: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """What would be installed: the wheel, and the torch that is there afterwards.

    Attributes:
        wheel: the file name of fusedops' wheel; None if the installer refused.
        torch: its version.
        says: the installer's last line.
    """

    wheel: str | None
    torch: str | None
    says: str = ""


def make_indexes(folder: Path, torches: Sequence[str]) -> Path:
    """PyPI with fusedops, torchwheel and the torch releases; and the groups of our own index."""
    dist, out = folder / "dist", folder / "out"
    helper = make_wheel(dist, name="torchwheel_runtime", version="0.1.0", claims=None, requires=())
    variants = select(load(ROOT / "matrix.yaml"), ["release"])
    wheels = {variant: stub(dist, variant) for variant in variants}
    of_each = groups_of([claims_of(variant) for variant in variants])
    ours = [
        IndexedWheel(wheels[variant], groups, UPLOADED)
        for variant, groups in zip(variants, of_each, strict=True)
    ]
    build_index([*ours, IndexedWheel(helper, all_groups(of_each), UPLOADED)], out / "index")
    accepted = [wheel for wheel in wheels.values() if "+" not in wheel.name]
    stubs = [
        make_wheel(dist, name="torch", version=version, claims=None, requires=())
        for version in torches
    ]
    everything = (*accepted, helper, *stubs)
    build_index([IndexedWheel(wheel, ("simple",), UPLOADED) for wheel in everything], out / "pypi")
    (out / "index.html").touch()
    return out


def stub(folder: Path, variant: Variant, release: str = "1.0.0") -> Path:
    """A small wheel with the name, tags, claims and requirements of a variant's."""
    version = f"{release}+{variant.local}" if variant.local else release
    platform = variant.platform.replace("linux_", "manylinux_2_17_")
    abi = "none" if variant.python is None else variant.python_tag
    requires = (f"torch{variant.torch_range}", "torchwheel-runtime>=0.1,<0.2")
    return make_wheel(
        folder,
        name="fusedops",
        version=version,
        tag=f"{variant.python_tag}-{abi}-{platform}",
        claims=claims_of(variant),
        requires=requires,
    )


@contextlib.contextmanager
def plain_server(folder: Path) -> Iterator[str]:
    """The address of `python -m http.server` on a free port of loopback."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout
            yield re.findall(r"http://[\d.:]+", server.stdout.readline())[0]
        finally:
            server.terminate()


class Installers:
    """pip and uv, an environment and the address of the indexes."""

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.python = folder / "venv" / "bin" / "python"
        (self.site,) = (folder / "venv").glob("lib/python3*/site-packages")
        (folder / "pip").mkdir()
        (folder / "pip" / "pip").symlink_to(Path(pip.__file__).parent)

    def _indexes(self, question: Question, default: str) -> list[str]:
        options = [default, f"{self.address}/pypi/simple/"]
        if question.group != PYPI:
            options += ["--extra-index-url", f"{self.address}/index/{question.group}/"]
        return [*options, *question.more, question.wants]

    def uv(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask uv, in a process for each question."""
        answers = []
        for question in questions:
            with_torch(self.site, question.torch)
            platform = ["--python-platform", question.platform[0]] if question.platform else []
            done = subprocess.run(
                [uv.find_uv_bin(), "pip", "install", "--dry-run", "--verbose", "--no-config"]
                + ["--python", str(self.python), "--cache-dir", str(self.folder / "uv")]
                + [*platform, *self._indexes(question, "--default-index")],
                capture_output=True,
                text=True,
                check=False,
            )
            wheel = re.search(r"Selecting: fusedops==\S+ \[\w+\] \((\S+)\)", done.stderr)
            torch = re.search(r"^ \+ torch==(\S+)$", done.stderr, re.M)
            answers.append(
                Answer(
                    wheel[1] if wheel and done.returncode == 0 else None,
                    torch[1] if torch else question.torch,
                    done.stderr,
                )
            )
        with_torch(self.site, None)
        return answers

    def pip(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask pip, in one process for all questions: it takes longest to start."""
        calls = []
        for question in questions:
            platform: list[str] = []
            if question.platform:
                platform = ["--only-binary=:all:", "--target", str(self.folder / "target")]
                platform += ["--platform", question.platform[1]]
            calls.append([question.torch, [*platform, *self._indexes(question, "--index-url")]])
        done = subprocess.run(
            [
                self.python,
                Path(__file__).with_name("pip_rows.py"),
                self.site,
                self.folder / "report.json",
            ],
            input=json.dumps(calls),
            # Without the configuration of the machine, which may hold torch back.
            env={"PYTHONPATH": str(self.folder / "pip"), "PIP_CONFIG_FILE": os.devnull},
            capture_output=True,
            text=True,
            check=True,
        )
        answers = []
        for question, (status, report) in zip(questions, json.loads(done.stdout), strict=True):
            installed = {item["metadata"]["name"]: item for item in report}
            wheel = installed.get("fusedops")
            torch = installed.get("torch")
            answers.append(
                Answer(
                    wheel["download_info"]["url"].rpartition("/")[2].replace("%2B", "+")
                    if wheel and status == 0
                    else None,
                    torch["metadata"]["version"] if torch else question.torch,
                    done.stderr,
                )
            )
        return answers


DRIVER, GPU = (f"NV_VARIANT_PROVIDER_FORCE_{name}" for name in ("CUDA_DRIVER_VERSION", "SM_ARCH"))


class Uv:
    """uv, which is told of a machine, an environment of its own, and the address of an index."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        subprocess.run([uv.find_uv_bin(), "venv", "--quiet", folder / "venv"], check=True)

    def _pip_install(self, driver: str, gpu: str, *options: str, variants: bool) -> str:
        """What `uv pip install` says of a machine."""
        forced = {} if driver == "none" else {DRIVER: driver, GPU: gpu}
        command = [uv.find_uv_bin(), "pip", "install", "--reinstall", "--verbose", "--no-config"]
        command += ["--preview-features", "wheel-variants"] if variants else []
        command += [
            *options,
            "--python",
            str(self.folder / "venv"),
            "--cache-dir",
            str(self.folder / "uv"),
        ]
        command += ["--default-index", self.address, "demo"]
        environ = {**os.environ, "NO_COLOR": "1", **forced}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def takes(self, driver: str = "none", gpu: str = "none", *, variants: bool = True) -> str:
        """The file that uv takes on a machine."""
        said = self._pip_install(driver, gpu, "--dry-run", variants=variants)
        selected = re.search(r"Selecting: demo==\S+ \[\w+\] \((\S+)\)", said)
        assert selected, said
        return selected[1]

    def installs(self, driver: str, gpu: str) -> list[str]:
        """The labels of what uv installs on a machine: those of its variant.json."""
        self._pip_install(driver, gpu, variants=True)
        (file,) = (self.folder / "venv").glob("lib/python3*/site-packages/demo-*/variant.json")
        return list(read_labels(file.read_bytes(), "variant.json"))
