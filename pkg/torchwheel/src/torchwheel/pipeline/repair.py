"""Repairs a wheel with auditwheel and writes its claims into it.

Containers import this module: only the standard library and packaging are present there.
"""

import csv
import dataclasses
import hashlib
import io
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from torchwheel import __version__
from torchwheel.inspect.archive import open_archive
from torchwheel.inspect.sbom import FILE as SBOM_FILE
from torchwheel.inspect.sbom import (
    BuiltLibrary,
    Material,
    Materials,
    Sbom,
    dump_sbom,
    is_grafted,
)
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime import process
from torchwheel_runtime.claims import FLAGS_SUFFIX, Claims, LibraryFlags
from torchwheel_runtime.errors import TorchwheelError, program_error
from torchwheel_runtime.files import record_hash
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.toolkit.host import host_compiler
from torchwheel_runtime.variant_format import FILE as LABEL_FILE
from torchwheel_runtime.variant_format import file_text, labelled_name, properties_of

# Libraries of the user's torch and driver.
_OUTSIDE = (
    "libtorch*.so*",
    "libc10*.so*",
    "libcuda.so*",
    "libnvidia-ml.so*",
    "libamdhip64.so*",
    "libhsa-runtime64.so*",
)


def path_with_scripts(environ: Mapping[str, str], python: str = sys.executable) -> str:
    """PATH of `environ`, with the folder of `python` in front."""
    return os.pathsep.join([str(Path(python).parent), environ.get("PATH", os.defpath)])


@dataclasses.dataclass(frozen=True)
class BuildMaterials:
    """What a build makes its libraries with.

    Attributes:
        locked: what its locks, its matrix and its image say.
        cxx: the C++ compiler, which is asked for its version.
        static_cxx: whether the C++ library is linked statically.
    """

    locked: Materials
    cxx: str
    static_cxx: bool = True

    def complete(self) -> Materials:
        """All of them, with the compiler, which must be on this machine."""
        path = os.environ.get("PATH", os.defpath)
        host = host_compiler({"CXX": self.cxx, "PATH": path})
        name, version = host.family, host.version
        found = [Material("compiler", name, version, purl=f"pkg:generic/{name}@{version}")]
        if self.static_cxx:
            # That of clang is the one of the system that it links for.
            found.append(Material("runtime", "libstdc++", version if name == "gcc" else ""))
        return tuple(sorted((*self.locked, *found)))


def finish_wheel(
    wheel: Path, claims: Claims, out: Path, materials: BuildMaterials | None = None
) -> Path:
    """Repair a built wheel and write its claims into it; returns the new wheel, in `out`.

    A pure-Python wheel needs no repair and has no materials. Each library of another was made with
    all of them.
    """
    if claims.abi == "pure" or materials is None:
        return stamp(wheel, claims, out)
    complete = materials.complete()
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        repaired = repair(wheel, Path(folder), claims.borrowed)
        return stamp(repaired, claims, out, lambda _: complete)


def repair(wheel: Path, out: Path, borrowed: Iterable[str] = ()) -> Path:
    """A copy of `wheel` in the empty folder `out`, with the platform tag that auditwheel finds.

    Libraries that it needs and no system has are copied into it. Those of torch and the driver are
    not, nor the `borrowed` ones, which torch loads as well.
    """
    command = [*process.python_module(sys.executable, "auditwheel"), "repair"]
    command += ["--plat", "auto", "--only-plat"]
    for name in (*_OUTSIDE, *borrowed):
        command += ["--exclude", name]
    env = {**os.environ, "PATH": path_with_scripts(os.environ)}
    done = process.run([*command, "--wheel-dir", out, wheel], env=env)
    repaired = list(out.glob("*.whl"))
    if done.status or len(repaired) != 1:
        reason = done.reason(otherwise="no wheel came out")
        raise program_error(f"auditwheel repair {wheel.name}: {reason}")
    return repaired[0]


# The oldest date that a zip can hold, so that the bytes do not depend on the day of the build.
_DATE = (1980, 1, 1, 0, 0, 0)
_GENERATOR = re.compile(rb"^Generator: .*$", re.MULTILINE)
_TORCH = re.compile(r"Requires-Dist:\s*torch(?![\w.-])", re.IGNORECASE)


def stamp(
    wheel: Path,
    claims: Claims,
    out: Path,
    materials_of: Callable[[str], Materials] = lambda _: (),
) -> Path:
    """A copy of `wheel` in `out` with `claims` in it; equal inputs give equal bytes everywhere.

    Its SBOM says what each library was made with: `materials_of` its path. A labelled wheel has
    variant.json too, and its label in the name.
    """
    _, version, _, _ = parse_wheel_filename(wheel.name)
    own = f"{version.local}." if version.local else ""
    if own and not (claims.local or "").startswith(own):
        raise TorchwheelError(
            f"{wheel.name}: has the local version {version.local!r} already; "
            f"torchwheel sets it: take it out of the project's version"
        )
    stamped = f"{version.public}+{claims.local}" if claims.local else str(version)
    members, flags = take_flags(wheel_members(wheel))
    claims = dataclasses.replace(claims, flags=flags)
    old = dist_info_of(members, wheel.name)
    new = f"{old.removesuffix('.dist-info').rpartition('-')[0]}-{stamped}.dist-info"
    renamed = {
        (new + n.removeprefix(old) if n.startswith(f"{old}/") else n): data
        for n, data in members.items()
    }
    metadata = renamed[f"{new}/METADATA"].decode("utf-8")
    renamed[f"{new}/METADATA"] = _metadata(metadata, stamped, claims.torch_range).encode()
    renamed[f"{new}/{claims_file.FILE}"] = claims_file.dumps(claims).encode()
    sbom = sbom_of_members(
        canonicalize_name(wheel.name.split("-")[0]), stamped, renamed, materials_of
    )
    renamed[f"{new}/{SBOM_FILE}"] = dump_sbom(sbom).encode()
    project, _, tags = wheel.name.split("-", 2)
    name = f"{project}-{stamped}-{tags}"
    if claims.label:
        text = file_text({claims.label: properties_of(claims)})
        renamed[f"{new}/{LABEL_FILE}"] = text.encode()
        name = labelled_name(name, claims.label)
    return _write_packed(renamed, new, out / name)


def sbom_of_members(
    name: str,
    version: str,
    members: Mapping[str, bytes],
    materials_of: Callable[[str], Materials],
) -> Sbom:
    """The SBOM of a wheel with these files; the libraries that were grafted in have none here."""
    libraries = (
        BuiltLibrary(
            file, hashlib.sha256(data).hexdigest(), () if is_grafted(file) else materials_of(file)
        )
        for file, data in sorted(members.items())
        if data.startswith(ELF_MAGIC)
    )
    return Sbom(name, version, tuple(libraries), __version__)


def take_flags(
    members: Mapping[str, bytes],
) -> tuple[dict[str, bytes], tuple[LibraryFlags, ...]]:
    """The files of a wheel without those in which its build left flags; and these flags."""
    left = {
        name: name.removesuffix(FLAGS_SUFFIX)
        for name in sorted(members)
        if name.endswith(FLAGS_SUFFIX) and name.removesuffix(FLAGS_SUFFIX) in members
    }
    flags = tuple(
        LibraryFlags(library, parse_json(members[name], tuple[str, ...], name))
        for name, library in left.items()
    )
    return {name: data for name, data in members.items() if name not in left}, flags


def repack(wheel: Path, out: Path) -> Path:
    """A copy of `wheel` in `out`, without claims; equal inputs give equal bytes everywhere."""
    return repack_members(wheel_members(wheel), out / wheel.name)


def repack_members(members: dict[str, bytes], target: Path) -> Path:
    """Write a wheel of these files; its RECORD is made anew."""
    return _write_packed(members, dist_info_of(members, target.name), target)


def wheel_members(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name."""
    with open_archive(wheel) as archive:
        return {member.name: archive.read(member) for member in archive.files}


def _write_packed(members: dict[str, bytes], dist_info: str, target: Path) -> Path:
    generator = f"Generator: torchwheel ({__version__})".encode()
    # torchwheel packs the wheel; and another setuptools must not change the bytes.
    wheel_file = _GENERATOR.sub(generator, members[f"{dist_info}/WHEEL"])
    record = f"{dist_info}/RECORD"
    own = {n: data for n, data in members.items() if n != record}
    pack({**own, f"{dist_info}/WHEEL": wheel_file}, record, target)
    return target


def dist_info_of(members: dict[str, bytes], wheel: str) -> str:
    """The name of its dist-info folder."""
    folders = {n.split("/")[0] for n in members if n.split("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise TorchwheelError(f"{wheel}: one dist-info folder expected, {len(folders)} found")
    return folders.pop()


def _metadata(text: str, version: str, torch: str) -> str:
    """The METADATA with another version and exactly one requirement on torch."""
    head, blank, body = text.partition("\n\n")
    lines = [line for line in head.rstrip("\n").split("\n") if not _TORCH.match(line)]
    lines = [f"Version: {version}" if line.startswith("Version:") else line for line in lines]
    return "\n".join([*lines, f"Requires-Dist: torch{torch}"]) + (blank + body or "\n")


def pack(
    members: Mapping[str, bytes | Iterable[bytes]],
    record: str,
    target: Path,
    executable: Collection[str] = (),
) -> None:
    """Write a wheel whose bytes depend on its files alone.

    Args:
        members: the files by name; one that is not to be held in memory comes in blocks.
        record: the name of RECORD, which is made here.
        target: the file to write.
        executable: files with a permission to execute; libraries have it anyway.
    """
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # The dist-info folder last, as PEP 427 recommends.
        for name in sorted(members, key=lambda n: (".dist-info/" in n, n)):
            rows.writerow([name, *_add(archive, name, members[name], name in executable)])
        rows.writerow([record, "", ""])
        _add(archive, record, table.getvalue().encode())


def _add(
    archive: zipfile.ZipFile, name: str, data: bytes | Iterable[bytes], executable: bool = False
) -> tuple[str, int]:
    """Write a file, and return its hash and size for RECORD."""
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    mode = 0o755 if executable or name.endswith(".so") else 0o644
    info.external_attr = (0o100000 | mode) << 16
    digest, size = hashlib.sha256(), 0
    with archive.open(info, "w") as file:
        for block in (data,) if isinstance(data, bytes) else data:
            digest.update(block)
            size += len(block)
            file.write(block)
    return record_hash(digest.digest()), size
