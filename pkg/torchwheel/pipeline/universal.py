"""Assembles a universal wheel: the project's Python files and the library of each of its parts."""

import dataclasses
import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar

from torchwheel.image.recipes import is_cross
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.container_files import read_usage
from torchwheel.pipeline.executors import executor_of
from torchwheel.pipeline.in_container import smoke_emulated
from torchwheel.pipeline.inputs import Clock, Run, cache_key, claims_of, claims_of_part
from torchwheel.pipeline.on_host import Host, container_reason
from torchwheel.pipeline.records import BuiltWheel
from torchwheel.pipeline.repair import dist_info_of, pack, repair, stamp, wheel_members
from torchwheel.pipeline.schedule import in_order
from torchwheel.smoke.record import SmokeRecord
from torchwheel_runtime.builder.environment import has_old_abi
from torchwheel_runtime.builder.extension import LIBRARIES
from torchwheel_runtime.claims import FLAGS_SUFFIX, Claims
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically, sha256
from torchwheel_runtime.toolkit.headers import torch_headers

_PURELIB = re.compile(rb"^Root-Is-Purelib: .*$", re.MULTILINE)
_TAG = re.compile(rb"^Tag: .*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class PartFile:
    """A part: its library's path in the wheel and bytes, and the file with its flags."""

    part: Variant
    name: str
    data: bytes
    flags: bytes = b""


def buildable_parts(run: Run, variant: Variant) -> tuple[Variant, ...]:
    """The parts that can be built here: all in containers, those of PyPI's toolkits on the host.

    Raises:
        UsageError: no kernel library can be built here.
    """
    if run.engine is not None:
        return variant.parts
    parts = tuple(part for part in variant.parts if container_reason(part) is None)
    if not any(part.part == "kernels" for part in parts):
        names = ", ".join(part.library for part in variant.parts if part.part == "kernels")
        raise UsageError(
            f"{variant.id}: none of its toolkits ({names}) can be built on this host: "
            "add --container"
        )
    return parts


def part_key(run: Run, part: Variant) -> str:
    """The hash of every input that can change a part's library."""
    return cache_key(run, part, executor_of(run, part).facts)


@dataclasses.dataclass(frozen=True)
class Assembler:
    """Has each part of a universal wheel built by its own executor, and puts them together."""

    run: Run
    variant: Variant
    place: ClassVar[str] = "host"

    @property
    def facts(self) -> Sequence[str]:
        """The keys of the parts."""
        return [part_key(self.run, part) for part in self.variant.parts]

    def build(self, out: Path, clock: Clock, *, tests: bool = True) -> BuiltWheel:
        """The finished wheel, below `out`; nothing tries it here, whatever `tests` says."""
        del tests
        wheel = build_universal(self.run, self.variant, out, clock)
        return BuiltWheel(wheel, cpu_seconds=cpu_seconds_of_parts(self.run, self.variant))

    def smoke(self, built: BuiltWheel, clock: Clock) -> SmokeRecord | None:
        """Smoke-test it here, or by emulation if it is for another machine."""
        if not is_cross(self.variant):
            return Host(self.run, self.variant).smoke(built, clock)
        if self.run.engine is None:
            return None
        with clock.step("emulated"):
            return smoke_emulated(self.run, self.variant, self.run.engine, built.wheel)


def with_parts_here(run: Run, variant: Variant) -> Variant:
    """The variant with the parts that can be built here; says which kernels are left out."""
    parts = buildable_parts(run, variant)
    left_out = [part.library for part in variant.parts if part not in parts]
    if left_out:
        run.progress.say(
            f"{variant.id}: without {', '.join(left_out)}, which are built in a container only"
        )
    return dataclasses.replace(variant, parts=parts)


def build_universal(run: Run, variant: Variant, out: Path, clock: Clock) -> Path:
    """The finished wheel of `variant`, below `out`; its parts are kept for the next run.

    Parts are built side by side, in the variant's order: kernels, which take longest, come first.
    """
    for name in ("base", "merged", "repaired", "finished"):
        (out / name).mkdir()

    def obtain(part: Variant) -> PartFile:
        try:
            with clock.step(part.id):
                return _obtain_part(run, part, out)
        except TorchwheelError as error:
            # The parts at work are finished first, which can take minutes.
            run.progress.say(f"{part.id}: FAILED: {error}")
            raise

    files = in_order(variant.parts, obtain, run.parts_at_once)
    with clock.step("assemble"):
        run.progress.step(f"{variant.id}: assembling")
        base = Host(run, variant).build_base(out / "base")
        merged = merge(base, files, variant.platform, out / "merged")
        repaired = repair(merged, out / "repaired")
        claims = universal_claims(run, variant, files, repaired)
        return stamp(repaired, claims, out / "finished")


def _obtain_part(run: Run, part: Variant, out: Path) -> PartFile:
    """The library of a part, from the cache if nothing that decides its bytes has changed."""
    folder = run.cached_folder("parts") / f"{part.id}-{part_key(run, part)[:16]}"
    if not folder.is_dir():
        work = out / part.id
        work.mkdir()
        wheel = executor_of(run, part).build(work, Clock(), tests=False).wheel
        name, data, flags = _library_in(wheel, part)
        with make_folder_atomically(folder) as temporary:
            target = temporary / PurePosixPath(name).name
            target.write_bytes(data)
            (temporary / "sha256").write_text(f"{sha256(target)}  {name}\n")
            (temporary / "flags").write_bytes(flags)
    digest, name = (folder / "sha256").read_text().split()
    data = (folder / PurePosixPath(name).name).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise TorchwheelError(f"{folder}: was changed after it was built; remove it")
    return PartFile(part, name, data, (folder / "flags").read_bytes())


def cpu_seconds_of_parts(run: Run, variant: Variant) -> dict[str, float]:
    """CPU seconds of each part's build in its container, when it was last built there."""
    builds = {part.id: read_usage(run.variant_folder(part))[0] for part in variant.parts}
    return {name: seconds["build"] for name, seconds in builds.items() if "build" in seconds}


def _library_in(wheel: Path, part: Variant) -> tuple[str, bytes, bytes]:
    """The path and the bytes of a part's library, and the file with its flags if there is one."""
    with zipfile.ZipFile(wheel) as archive:
        folder = f"/{LIBRARIES}/{part.part}/"
        names = [name for name in archive.namelist() if folder in name and name.endswith(".so")]
        if len(names) != 1:
            raise TorchwheelError(f"{part.id}: one library in {folder} expected, found {names}")
        record = f"{names[0]}{FLAGS_SUFFIX}"
        flags = archive.read(record) if record in archive.namelist() else b""
        return names[0], archive.read(names[0]), flags


def merge(base: Path, files: Sequence[PartFile], platform: str, out: Path) -> Path:
    """A pure wheel and libraries as one wheel of `platform`, in the folder `out`."""
    members = wheel_members(base)
    info = dist_info_of(members, base.name)
    wheel_file = _PURELIB.sub(b"Root-Is-Purelib: false", members[f"{info}/WHEEL"])
    members[f"{info}/WHEEL"] = _TAG.sub(f"Tag: py3-none-{platform}".encode(), wheel_file)
    record = f"{info}/RECORD"
    own = {name: data for name, data in members.items() if name != record}
    own |= {f"{file.name}{FLAGS_SUFFIX}": file.flags for file in files if file.flags}
    project, version, *_ = base.name.split("-")
    target = out / f"{project}-{version}-py3-none-{platform}.whl"
    pack({**own, **{file.name: file.data for file in files}}, record, target)
    return target


def universal_claims(run: Run, variant: Variant, files: Sequence[PartFile], wheel: Path) -> Claims:
    """The claims of the wheel: those of its parts, with the hashes that they have in it."""
    members: Mapping[str, bytes] = wheel_members(wheel)
    parts = []
    for file in files:
        digest = hashlib.sha256(members[file.name]).hexdigest()
        part = claims_of_part(file.part, file.name, digest)
        if part.kind == "front_end" and part.abi == "aten":
            headers = torch_headers(file.part.torch_release, run.cache, run.progress)
            part = dataclasses.replace(part, old_abi=has_old_abi(headers))
        parts.append(part)
    return dataclasses.replace(claims_of(variant), parts=tuple(parts))
