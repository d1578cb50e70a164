"""The executor of a build: this machine's compiler, a container of an image, or an assembler.

A universal wheel has the project's Python files and the library of each of its parts. A labelled
wheel has some of the same libraries.
"""

import dataclasses
import functools
import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar

from torchwheel.image.images import ensure_image
from torchwheel.image.recipes import image_of, is_cross
from torchwheel.image.registry import registry_of
from torchwheel.inspect.sbom import FILE as SBOM_FILE
from torchwheel.inspect.sbom import Materials, parse_sbom
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.build_records import BuiltWheel
from torchwheel.pipeline.in_container import Container, smoke_emulated
from torchwheel.pipeline.inputs import Clock, Run, cache_key, claims_of, claims_of_part
from torchwheel.pipeline.inside import read_usage
from torchwheel.pipeline.on_host import Host, container_reason
from torchwheel.pipeline.repair import dist_info_of, pack, repair, stamp, wheel_members
from torchwheel.pipeline.schedule import in_order
from torchwheel.smoke.smoke_record import SmokeRecord
from torchwheel_runtime.builder.extension import LIBRARIES
from torchwheel_runtime.builder.variables import has_old_abi
from torchwheel_runtime.claims import FLAGS_SUFFIX, Claims
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically, sha256
from torchwheel_runtime.toolkit.headers import torch_headers

Compiler = Host | Container
"""Builds the wheel of a variant, or compiles a shard of its objects, and tries the wheel."""


def compiler_of(run: Run, variant: Variant) -> Compiler:
    """A container for native code, if the run has an engine, else the host; makes the image."""
    if run.engine is None or variant.toolkit is None:
        return Host(run, variant)
    image, registry = image_of(run.matrix, variant, run.root), registry_of(run.matrix, run.root)
    built = ensure_image(run.engine, image, run.cache, run.progress, registry)
    return Container(run, variant, run.engine, built)


_PURELIB = re.compile(rb"^Root-Is-Purelib: .*$", re.MULTILINE)
_TAG = re.compile(rb"^Tag: .*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class PartFile:
    """A part: its library's path in the wheel and bytes, the file with its flags, its SBOM."""

    part: Variant
    name: str
    data: bytes
    flags: bytes = b""
    sbom: bytes = b""

    @property
    def materials(self) -> Materials:
        """What its library was made with."""
        libraries = parse_sbom(self.sbom, f"{self.part.id}: {SBOM_FILE}").libraries
        return next(one.materials for one in libraries if one.file == self.name)


@dataclasses.dataclass(frozen=True)
class Assembler:
    """Has each part of a universal wheel built by its compiler, and puts them together."""

    run: Run
    variant: Variant
    compilers: tuple[Compiler, ...]
    place: ClassVar[str] = "host"

    @functools.cached_property
    def facts(self) -> Sequence[str]:
        """The key of each part: the hash of every input that can change its library."""
        return [cache_key(one.run, one.variant, one.facts) for one in self.compilers]

    def build(self, out: Path, clock: Clock, *, tests: bool = True) -> BuiltWheel:
        """The finished wheel, below `out`; nothing tries it here, whatever `tests` says.

        Parts are built side by side, in the variant's order: kernels, which take longest, come
        first. They are kept for the next run.
        """
        del tests
        for name in ("base", "merged", "repaired", "finished"):
            (out / name).mkdir()

        def obtain(keyed: tuple[Compiler, str]) -> PartFile:
            compiler, key = keyed
            with clock.step(compiler.variant.id):
                return _obtain_part(compiler, key, out)

        keyed = list(zip(self.compilers, self.facts, strict=True))
        files = in_order(keyed, obtain, self.run.parts_at_once)
        with clock.step("assemble"):
            base = Host(self.run, self.variant).build_base(out / "base")
            merged = merge(base, files, self.variant.platform, out / "merged")
            repaired = repair(merged, out / "repaired")
            claims = universal_claims(self.run, self.variant, files, repaired)
            made_with = {file.name: file.materials for file in files}
            wheel = stamp(repaired, claims, out / "finished", lambda name: made_with.get(name, ()))
        return BuiltWheel(wheel, cpu_seconds=cpu_seconds_of_parts(self.run, self.variant))

    def smoke(self, built: BuiltWheel, clock: Clock) -> SmokeRecord | None:
        """Smoke-test it here, or by emulation if it is for another machine."""
        if not is_cross(self.variant):
            return Host(self.run, self.variant).smoke(built, clock)
        if self.run.engine is None:
            return None
        with clock.step("emulated"):
            return smoke_emulated(self.run, self.variant, self.run.engine, built.wheel)


Executor = Host | Container | Assembler
"""Has what builds a variant need: `place` and `facts`, which name it; `build` and `smoke`."""


def executor_of(run: Run, variant: Variant) -> Executor:
    """What builds a variant."""
    if variant.parts:
        return Assembler(run, variant, tuple(compiler_of(run, part) for part in variant.parts))
    return compiler_of(run, variant)


def tasks_of(run: Run, variant: Variant) -> tuple[str, ...]:
    """The tasks by which a variant is built and proven, as its clock has them."""
    contained = run.engine is not None and variant.toolkit is not None
    if variant.parts:
        here = [part for part in variant.parts if container_reason(part, run.engine) is None]
        built = [*(part.id for part in here), "assemble"]
    elif contained:
        built = ["container"]
    else:
        built = [*(["toolkit"] if variant.toolkit else []), "build", "repair"]
    if variant.native and is_cross(variant):
        tried = ["emulated"] if run.engine else []
    else:
        tried = [] if contained else ["smoke"]
    twice = ["twice"] if run.twice and variant.native else []
    return (*built, "gates", *tried, *twice)


def compilers_in(executor: Executor) -> tuple[Compiler, ...]:
    """What compiles: the executor itself, or one for each part."""
    return executor.compilers if isinstance(executor, Assembler) else (executor,)


def with_run(executor: Executor, run: Run) -> Executor:
    """The same executor in another run, e.g. for a second build elsewhere."""
    if isinstance(executor, Assembler):
        compilers = tuple(dataclasses.replace(one, run=run) for one in executor.compilers)
        return Assembler(run, executor.variant, compilers)
    return dataclasses.replace(executor, run=run)


def with_parts_here(run: Run, variant: Variant) -> Variant:
    """The variant with the parts that can be built here; says which kernels are left out.

    Raises:
        UsageError: no kernel library can be built here.
    """
    parts = tuple(p for p in variant.parts if container_reason(p, run.engine) is None)
    if not any(part.part == "kernels" for part in parts):
        names = ", ".join(part.library for part in variant.parts if part.part == "kernels")
        raise UsageError(
            f"{variant.id}: none of its toolkits ({names}) can be built on this host: "
            "add --container"
        )
    left_out = [part.library for part in variant.parts if part not in parts]
    if left_out:
        run.progress.say(
            f"{variant.id}: without {', '.join(left_out)}, which are built in a container only"
        )
    return dataclasses.replace(variant, parts=parts)


def _obtain_part(compiler: Compiler, key: str, out: Path) -> PartFile:
    """The library of a part, from the cache if nothing that decides its bytes has changed."""
    part = compiler.variant
    folder = compiler.run.cached_folder("parts") / f"{part.id}-{key[:16]}"
    if not folder.is_dir():
        work = out / part.id
        work.mkdir()
        wheel = compiler.build(work, Clock(), tests=False).wheel
        name, data, flags, sbom = _library_in(wheel, part)
        with make_folder_atomically(folder) as temporary:
            target = temporary / PurePosixPath(name).name
            target.write_bytes(data)
            (temporary / "sha256").write_text(f"{sha256(target)}  {name}\n")
            (temporary / "flags").write_bytes(flags)
            (temporary / "sbom").write_bytes(sbom)
    digest, name = (folder / "sha256").read_text().split()
    data = (folder / PurePosixPath(name).name).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise TorchwheelError(f"{folder}: was changed after it was built; remove it")
    return PartFile(part, name, data, *((folder / of).read_bytes() for of in ("flags", "sbom")))


def cpu_seconds_of_parts(run: Run, variant: Variant) -> dict[str, float]:
    """CPU seconds of each part's build in its container, when it was last built there."""
    builds = {part.id: read_usage(run.variant_folder(part))[0] for part in variant.parts}
    return {name: seconds["build"] for name, seconds in builds.items() if "build" in seconds}


def _library_in(wheel: Path, part: Variant) -> tuple[str, bytes, bytes, bytes]:
    """The path and the bytes of a part's library, the file with its flags if any, and its SBOM."""
    with zipfile.ZipFile(wheel) as archive:
        folder = f"/{LIBRARIES}/{part.part}/"
        names = [name for name in archive.namelist() if folder in name and name.endswith(".so")]
        if len(names) != 1:
            raise TorchwheelError(f"{part.id}: one library in {folder} expected, found {names}")
        record = f"{names[0]}{FLAGS_SUFFIX}"
        flags = archive.read(record) if record in archive.namelist() else b""
        sbom = next(name for name in archive.namelist() if name.endswith(SBOM_FILE))
        return names[0], archive.read(names[0]), flags, archive.read(sbom)


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
