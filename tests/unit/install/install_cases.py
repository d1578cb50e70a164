"""An environment with a GPU, wheels for it, and an index that is a mapping."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

import wheelmaker
from torchwheel.index.client import JSON
from torchwheel.index.needs import KEY, IndexNote, needs_of_claims, note_json
from torchwheel.inspect.local_version import read_local_version
from torchwheel.install.choose import Judgement, judge
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel, needs_of_name
from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.fetch import Answer
from torchwheel_runtime.machine.facts import Torch

SITE = Path("/venv/lib/python3.12/site-packages")
ANY = SpecifierSet()
DIGEST = "0" * 64
PLATFORM = "manylinux_2_28_x86_64"
ENVIRONMENT = TargetEnvironment(
    program=Path("/venv/bin/python"),
    python="3.12.3",
    implementation="CPython",
    platform="linux_x86_64",
    tags=(
        *(f"cp312-cp312-manylinux_2_{minor}_x86_64" for minor in (36, 28, 17)),
        *(f"py3-none-manylinux_2_{minor}_x86_64" for minor in (36, 28, 17)),
        "py3-none-any",
    ),
    markers={"python_version": "3.12", "sys_platform": "linux"},
    glibc="2.36",
    torch=Torch("2.11.0+cu130", "13.0", None, SITE / "torch"),
    driver=Driver("cuda", "580.95.05", "13.0"),
    gpus=(Gpu(0, "NVIDIA H200", parse("9.0")),),
)
WITHOUT_GPU: dict[str, Any] = {"gpus": (), "driver": None}


def environment(torch: str | None = "2.11.0+cu130", **changes: Any) -> TargetEnvironment:
    """The environment with this torch, and `changes`."""
    found = None
    if torch:
        local = torch.partition("+")[2]
        cuda = f"{local[2:4]}.{local[4]}" if local.startswith("cu") else None
        hip = local.removeprefix("rocm") if local.startswith("rocm") else None
        found = Torch(torch, cuda, hip, SITE / "torch", changes.pop("old_abi", False))
    return dataclasses.replace(ENVIRONMENT, torch=found, **changes)


def candidate(version: str, tag: str = "cp312-cp312", **changes: Any) -> OfferedWheel:
    """A wheel whose name says what it needs."""
    platform = changes.pop("platform", "any" if tag == "py3-none" else PLATFORM)
    file = f"demo-{version}-{tag}-{platform}.whl"
    _, parsed, build, tags = parse_wheel_filename(file)
    said = read_local_version(parsed)
    fields = {
        "file": file,
        "version": parsed,
        "build": build,
        "tags": tags,
        "url": f"https://host/{file}",
        "needs": needs_of_name(said),
        "described": False,
        "said": said,
        "sha256": DIGEST,
    }
    return OfferedWheel(**{**fields, **changes})


def described(version: str, claims: Any, tag: str = "py3-none", **changes: Any) -> OfferedWheel:
    """A wheel of our own index."""
    platform = changes.pop("platform", PLATFORM)
    needs = needs_of_claims(claims)
    return candidate(version, tag, platform=platform, needs=needs, described=True, **changes)


def rules(judgement: Judgement) -> list[str]:
    """The rules that a wheel does not hold; none if it fits."""
    return [one.rule for one in judgement.reasons]


def judged(one: OfferedWheel, here: TargetEnvironment = ENVIRONMENT, wanted: str = "") -> list[str]:
    return rules(judge(one, here, SpecifierSet(wanted)))


def entry(file: str, **changes: Any) -> dict[str, Any]:
    """A file of PEP 691's document."""
    return {"filename": file, "url": f"../../files/{file}", "hashes": {"sha256": DIGEST}, **changes}


def document(*files: dict[str, Any], name: str = "demo", **changes: Any) -> str:
    head = {"meta": {"api-version": "1.4"}, "name": name, "files": list(files)}
    return json.dumps({**head, **changes})


def bundles(*names: str) -> dict[str, Any]:
    """What a page of our index says of the packages that are published with its wheels."""
    return {KEY: {"bundled": list(names)}}


def note(claims: Any = None, **changes: Any) -> dict[str, Any]:
    needs = needs_of_claims(claims or wheelmaker.stable())
    return {KEY: {**note_json(IndexNote(needs)), **changes}}


class Pages:
    """An index whose pages are given by their addresses, and whose files are files."""

    def __init__(self, pages: dict[str, str | bytes], files: dict[str, bytes] | None = None):
        self.pages, self.files, self.asked = pages, files or {}, []

    def page(self, url: str, accept: str) -> Answer | None:
        self.asked.append(url)
        found = self.pages.get(url)
        if found is None:
            return None
        body = found.encode() if isinstance(found, str) else found
        return Answer(url, JSON if body[:1] != b"<" else "text/html", body)

    def file(self, url: str, target: Path, sha256: str, size: int | None) -> None:
        target.write_bytes(self.files[url])
