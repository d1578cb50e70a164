"""Makes small ELF files, right or bent in one place: GPU code and libraries around it."""

import struct
import zlib
from collections.abc import Mapping, Sequence

AMDGPU, CUDA = 224, 190
X86_64 = 62
_SYMBOL = struct.Struct("<IBBHQQ")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMTAB, _STRTAB, _DYNSYM, _PROGBITS = 2, 3, 11, 1
_CONTAINER = struct.Struct("<IHHQ")
_MODULE = struct.Struct("<HHIQIIHHIIIQQQ")


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
    kernels: Sequence[str] = (),
    sections: Mapping[str, bytes] | None = None,
    kinds: Mapping[str, tuple[int, int]] | None = None,
    table: bytes | None = None,
    strings: bytes | None = None,
    loaded: str | None = None,
) -> bytes:
    """A shared object, or a cubin.

    Args:
        machine, flags, abi_version: fields of its header.
        symbols: the names that it defines.
        kernels: those that it defines as entry points of a cubin.
        sections: the bytes of its other sections.
        kinds: the type of some of them, and their count of records (`sh_info`).
        table, strings: the symbols and their names as they lie in the file.
        loaded: the section that the loader takes for the dynamic one, by the program headers.
    """
    own_strings, places = _names([*symbols, *kernels])
    rows = _SYMBOL.pack(0, 0, 0, 0, 0, 0)
    for number, place in enumerate(places):
        kind, other = (0x11, 0) if number < len(symbols) else (0x12, 0x10)
        rows += _SYMBOL.pack(place, kind, other, 1, 64, 64)
    table, strings = table or rows, strings or own_strings
    name = ".symtab" if machine == CUDA else ".dynsym"
    parts = [
        (name, _SYMTAB if machine == CUDA else _DYNSYM, table, 2, _SYMBOL.size, 0),
        (".dynstr", _STRTAB, strings, 0, 0, 0),
    ]
    for name, data in (sections or {}).items():
        kind, count = (kinds or {}).get(name, (_PROGBITS, 0))
        # A hash table leads to the symbols, all others to the names.
        parts.append((name, kind, data, 1 if name == ".hash" else 2, 0, count))
    section_names, name_places = _names([*(part[0] for part in parts), ".shstrtab"])
    parts.append((".shstrtab", _STRTAB, section_names, 0, 0, 0))
    body, headers, segments = b"", _SECTION.pack(*[0] * 10), b""
    start = _HEADER.size + (2 * _SEGMENT.size if loaded else 0)
    for (part, kind, data, link, size, count), place in zip(parts, name_places, strict=True):
        at = start + len(body)
        headers += _SECTION.pack(place, kind, 0, 0, at, len(data), link, count, 1, size)
        if part == loaded:
            segments = _SEGMENT.pack(1, 4, 0, 0, 0, 1 << 20, 1 << 20, 1)
            segments += _SEGMENT.pack(2, 4, at, at, at, len(data), len(data), 8)
        body += data
    identity = b"\x7fELF" + bytes([2, 1, 1, 64 if machine == AMDGPU else 0, abi_version])
    count = len(parts) + 1
    header = _HEADER.pack(
        *(identity.ljust(16, b"\0"), 3, machine, 1, 0, _HEADER.size if loaded else 0),
        *(start + len(body), flags, _HEADER.size, _SEGMENT.size, 2 if loaded else 0),
        *(_SECTION.size, count, count - 1),
    )
    return header + segments + body + headers


def cubin(arch: int = 80, kernels: Sequence[str] = ("_Z1kPf",), abi_version: int = 8) -> bytes:
    """Machine code for an NVIDIA GPU, as CUDA 13 writes it (ABI 8) or CUDA 12 (7)."""
    flags = arch << 8 if abi_version == 8 else arch
    return make_elf(
        machine=CUDA, flags=flags, abi_version=abi_version, symbols=("helper",), kernels=kernels
    )


def ptx(target: str = "sm_80") -> bytes:
    return f"\n//\n.version 9.0\n.target {target}\n.address_size 64\n".encode()


def module(code: bytes, arch: int = 80, *, flags: int = 0x11, **changes: int) -> bytes:
    """A module of a fat binary: its header and its code, whose kind its first bytes tell."""
    room = -(-len(code) // 8) * 8
    packed = len(code) if flags & 0xA000 else 0
    fields = {"kind": 2 if code.startswith(b"\x7fELF") else 1, "header": 64, "room": room}
    fields |= {"packed": packed, "arch": arch, "size": 0, **changes}
    head = _MODULE.pack(
        *(fields["kind"], 0x101, fields["header"], fields["room"], fields["packed"], 0, 8, 1),
        *(fields["arch"], 0, 0, flags, 0, fields["size"]),
    )
    return head + code.ljust(room, b"\0")


def fatbin(*modules: bytes, **changes: int) -> bytes:
    """A container of modules."""
    data = b"".join(modules)
    fields = {"magic": 0xBA55ED50, "version": 1, "header": 16, "size": len(data), **changes}
    return _CONTAINER.pack(*fields.values()) + data


LZ4 = 0x2011
"""The flags of a module that is packed by LZ4."""


def lz4_literals(data: bytes) -> bytes:
    """A block of literal bytes alone."""
    count, more = len(data) - 15, b""
    while count >= 255:
        more, count = more + b"\xff", count - 255
    return b"\xf0" + more + bytes([count]) + data


def cuda_library(*containers: bytes) -> bytes:
    """A library with CUDA code in it."""
    return make_elf(sections={".nv_fatbin": b"".join(containers)})


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


def linked(
    *,
    undefined: Sequence[str] = (),
    defined: Sequence[str] = (),
    needed: Sequence[str] = (),
    run_paths: Sequence[str] = (),
    soname: str | None = None,
    sections: Mapping[str, bytes] | None = None,
) -> bytes:
    """A library with symbols that others define, libraries that it needs and run paths."""
    strings, places = _names(
        [*undefined, *defined, *needed, *run_paths, *([soname] if soname else [])]
    )
    table = _SYMBOL.pack(0, 0, 0, 0, 0, 0)
    for number, place in enumerate(places[: len(undefined) + len(defined)]):
        table += _SYMBOL.pack(place, 0x12, 0, int(number >= len(undefined)), 0, 0)
    tags = [1] * len(needed) + [29] * len(run_paths) + ([14] if soname else [])
    rest = places[len(undefined) + len(defined) :]
    dynamic = b"".join(struct.pack("<qQ", *row) for row in zip(tags, rest, strict=True))
    return make_elf(
        sections={".dynamic": dynamic + bytes(16), **(sections or {})},
        kinds={".dynamic": (6, 0)},
        table=table,
        strings=strings,
    )
