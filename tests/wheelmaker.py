"""Makes small real wheels, right or bent in one place, for the tests of every part."""

import base64
import functools
import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from torchwheel.inspect.sbom import FILE as SBOM
from torchwheel.inspect.sbom import Material, dump_sbom, pypi_material
from torchwheel.pipeline.repair import sbom_of_members
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.arch.model import BRANDS, parse
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.claims import Claims, Part
from torchwheel_runtime.variant_format import FILE, file_text, labelled_name, properties_of

PURE = Claims(variant="pure", abi="pure", torch_release="2.6")


def stable(*, archs: Sequence[str] = ("8.0", "9.0"), **changes: object) -> Claims:
    """Claims of a CUDA stable-ABI wheel for `archs`, with `changes`."""
    fields: dict[str, object] = {
        "variant": "cu130-stable",
        "abi": "stable",
        "torch_release": "2.11",
        "backend": "cuda",
        "toolkit": "cu130",
        "toolkit_version": "13.0",
        "archs": tuple(map(parse, archs)),
    }
    return Claims(**{**fields, **changes})  # type: ignore[arg-type]


def universal(
    toolkits: Sequence[str] = ("cuda 13.0",), torch: Sequence[str] = ("2.6", "2.11")
) -> Claims:
    """Claims of a universal wheel: kernels of `toolkits`, front ends for `torch` (2.11: stable)."""
    kernels = [
        Part(
            "kernels",
            ToolkitRelease(backend, version).name,
            f"demo/_lib/kernels/{backend}{version}.so",
            "0" * 64,
            backend=backend,
            toolkit_version=version,
            archs=(parse("8.0" if backend == "cuda" else "gfx90a"),),
        )
        for text in toolkits
        for backend, version in [text.split()]
    ]
    front_ends = [
        Part("front_end", "stable", "demo/_lib/front_end/stable.so", "0" * 64, minor)
        if minor == "2.11"
        else Part(
            "front_end", f"torch{minor}", f"demo/_lib/{minor}.so", "0" * 64, minor, abi="aten"
        )
        for minor in torch
    ]
    return Claims("universal", "universal", torch[0], parts=(*kernels, *front_ends))


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def metadata(name: str, version: str, requires: Sequence[str]) -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return ("\n".join([*lines, "Requires-Python: >=3.10", ""])).encode()


def materials(claims: Claims, file: str = "") -> tuple[Material, ...]:
    """What a library of a wheel with these claims may have been made with."""
    part = claims.part_of(file)
    needs = part.needs if part else claims.needs
    made = [Material("compiler", "gcc", "12.2.0", purl="pkg:generic/gcc@12.2.0")]
    if needs.backend:
        made.append(Material("toolkit", BRANDS[needs.backend], needs.toolkit_version or ""))
    if needs.torch_range:
        release = part.torch_release if part else claims.torch_release
        made.append(pypi_material("headers", "torch", f"{release}.0", "ab" * 32))
    return tuple(made)


def sbom_text(name: str, version: str, members: Mapping[str, bytes], claims: Claims) -> str:
    """The SBOM that fits a wheel."""
    of = functools.partial(materials, claims)
    return dump_sbom(sbom_of_members(canonicalize_name(name), version, members, of))


def wheel_around(folder: Path, library: bytes, claims: Claims, platform: str) -> Path:
    """A wheel for every Python that holds `library` and claims what `claims` say."""
    return make_wheel(
        folder,
        version=f"1.0.0+{claims.local}",
        tag=f"py3-none-{platform}",
        files={"demo/__init__.py": b"", "demo/_C.so": library},
        claims=claims,
        requires=(f"torch{claims.torch_range}",),
    )


def make_wheel(
    folder: Path,
    *,
    name: str = "demo",
    version: str = "1.0.0",
    tag: str = "py3-none-any",
    files: Mapping[str, bytes] | None = None,
    claims: Claims | None = PURE,
    requires: Sequence[str] = ("torch>=2.6",),
    bend: Callable[[dict[str, bytes]], None] = lambda members: None,
    bend_record: Callable[[str], str] = lambda text: text,
) -> Path:
    """Write a wheel; `bend` changes the members before RECORD is made, `bend_record` RECORD."""
    info = f"{name}-{version}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    members = dict(files or {f"{name}/__init__.py": b"answer = 42\n"})
    members[f"{info}/METADATA"] = metadata(name, version, requires)
    members[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: wheelmaker\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    ).encode()
    label = claims.label if claims else None
    if claims is not None:
        members[f"{info}/{claims_file.FILE}"] = claims_file.dumps(claims).encode()
    if claims is not None and label:
        members[f"{info}/{FILE}"] = file_text({label: properties_of(claims)}).encode()
    bend(members)
    if claims is not None:
        own = next((m for m in members if m.endswith(".dist-info/METADATA")), f"{info}/")
        text = sbom_text(name, version, members, claims)
        members.setdefault(f"{own.split('/')[0]}/{SBOM}", text.encode())
    record = "".join(record_line(*item) for item in members.items()) + f"{info}/RECORD,,\n"
    members[f"{info}/RECORD"] = bend_record(record).encode()
    folder.mkdir(parents=True, exist_ok=True)
    file = f"{name}-{version}-{tag}.whl"
    path = folder / (labelled_name(file, label) if label else file)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0)), data)
    return path


def requirement_of(wheel: Path) -> str:
    """The requirement that this file meets."""
    return f"{wheel.name.split('-')[0]} @ {wheel.as_uri()}"
