"""Makes small ELF files, right or bent in one place: code objects and libraries around them."""

import struct
import zlib
from collections.abc import Mapping, Sequence

AMDGPU = 224
X86_64 = 62
_SYMBOL = struct.Struct("<IBBHQQ")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_STRTAB, _DYNSYM, _PROGBITS = 3, 11, 1


def _names(names: Sequence[str]) -> tuple[bytes, list[int]]:
    data, places = b"\0", []
    for name in names:
        places.append(len(data))
        data += name.encode() + b"\0"
    return data, places


def make_elf(
    *,
    machine: int = X86_64,
    flags: int = 0,
    abi_version: int = 0,
    symbols: Sequence[str] = (),
    sections: Mapping[str, bytes] | None = None,
) -> bytes:
    """A shared object that defines `symbols` and has `sections` beside its table of them."""
    strings, places = _names(symbols)
    table = _SYMBOL.pack(0, 0, 0, 0, 0, 0)
    table += b"".join(_SYMBOL.pack(place, 0x11, 0, 1, 64, 64) for place in places)
    parts = [
        (".dynsym", _DYNSYM, table, 2, _SYMBOL.size),
        (".dynstr", _STRTAB, strings, 0, 0),
        *((name, _PROGBITS, data, 0, 0) for name, data in (sections or {}).items()),
    ]
    section_names, name_places = _names([*(part[0] for part in parts), ".shstrtab"])
    parts.append((".shstrtab", _STRTAB, section_names, 0, 0))
    body, headers = b"", _SECTION.pack(*[0] * 10)
    for (_, kind, data, link, size), place in zip(parts, name_places, strict=True):
        at = _HEADER.size + len(body)
        headers += _SECTION.pack(place, kind, 0, 0, at, len(data), link, 0, 1, size)
        body += data
    identity = b"\x7fELF" + bytes([2, 1, 1, 64 if machine == AMDGPU else 0, abi_version])
    count = len(parts) + 1
    header = _HEADER.pack(
        *(identity.ljust(16, b"\0"), 3, machine, 1, 0, 0, _HEADER.size + len(body), flags),
        *(_HEADER.size, 0, 0, _SECTION.size, count, count - 1),
    )
    return header + body + headers


def code_object(flags: int = 0x53F, kernels: Sequence[str] = ("_Z1kPf",), **changes: int) -> bytes:
    """A code object, for gfx90a unless `flags` say another."""
    symbols = [symbol for kernel in kernels for symbol in (kernel, f"{kernel}.kd")]
    fields: dict[str, int] = {"machine": AMDGPU, "flags": flags, "abi_version": 4, **changes}
    return make_elf(symbols=symbols, **fields)  # type: ignore[arg-type]


def make_bundle(codes: Mapping[str, bytes], align: int = 4096) -> bytes:
    """A bundle as clang makes it; the names are targets, e.g. "gfx90a:xnack-"."""
    entries = {"host-x86_64-unknown-linux-gnu-": b""}
    entries |= {f"hipv4-amdgcn-amd-amdhsa--{target}": code for target, code in codes.items()}
    at, header, body = align, b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)), b""
    for name, code in entries.items():
        header += struct.pack("<QQQ", at + len(body), len(code), len(name)) + name.encode()
        body += code.ljust(-(-len(code) // align) * align, b"\0")
    return header.ljust(align, b"\0") + body


def packed(plain: bytes, *, version: int = 3, method: int = 0, size: int | None = None) -> bytes:
    """A bundle in its packed form: with zlib, whatever `method` says, and naming `size` bytes."""
    data = zlib.compress(plain)
    sizes = struct.Struct("<II8x" if version == 2 else "<QQ8x")
    whole = 8 + sizes.size + len(data)
    head = struct.pack("<4sHH", b"CCOB", version, method)
    return head + sizes.pack(whole, len(plain) if size is None else size) + data


def hip_library(*bundles: bytes, registered: int | None = None) -> bytes:
    """A library with HIP code in it."""
    count = len(bundles) if registered is None else registered
    return make_elf(
        sections={".hip_fatbin": b"".join(bundles), ".hipFatBinSegment": bytes(24 * count)}
    )
