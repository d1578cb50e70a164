"""Has this system's linker and headers make what an older glibc can run.

    python glibc-limit.py 2.28 ROOT

A function that changed has a version for each state, such as pow@GLIBC_2.2.5 and pow@GLIBC_2.29,
and the linker takes the default one. In the libraries below ROOT the newest one that glibc 2.28 has
becomes the default, for functions of which both do the same. A function that is newer altogether,
such as gettid, stays: a wheel that needs it is refused by its platform tag.
"""

import re
import shutil
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_HIDDEN = 0x8000
_DYNSYM, _VERDEF, _VERSYM = 11, 0x6FFFFFFD, 0x6FFFFFFF
_FOLDERS = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "usr/*-linux-gnu/lib")
# Since glibc 2.29 they set errno themselves, where an older one has a wrapper for it. totalorder of
# glibc 2.31 is another function than the one before: it takes pointers.
_SAME = frozenset({"exp", "exp2", "log", "log2", "pow"})
# libstdc++ calls functions of glibc 2.30 where it has them, and has a way without.
_CLOCKS = re.compile(r"^#define (_GLIBCXX_USE_PTHREAD_\w+_CLOCK(?:WAIT|LOCK)) 1$", re.MULTILINE)

Version = tuple[int, ...]


def version_of(text: str) -> Version:
    """The numbers of "2.28"."""
    return tuple(map(int, text.split(".")))


def limit_library(data: bytearray, newest: Version) -> list[str]:
    """Move the defaults of a shared library's symbols; returns the names of the symbols."""
    at, size, count = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58))
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    kinds = {section[1]: section for section in sections}
    if not {_DYNSYM, _VERDEF, _VERSYM} <= kinds.keys():
        return []
    (*_, start, length, link, _, _, each) = kinds[_DYNSYM]
    strings, table = sections[link][4], kinds[_VERSYM][4]
    versions = dict(_versions(data, kinds[_VERDEF][4], strings))
    symbols: dict[str, dict[Version, int]] = {}
    for i in range(length // each):
        name, info, section = struct.unpack_from("<IBxH", data, start + i * each)
        place = table + 2 * i
        number = versions.get(struct.unpack_from("<H", data, place)[0] & ~_HIDDEN)
        text = _text(data, strings + name)
        if text in _SAME and section and info >> 4 and number:  # it is defined here, and not local
            symbols.setdefault(text, {})[number] = place
    return [name for name, places in symbols.items() if _move_default(data, places, newest)]


def _move_default(data: bytearray, places: Mapping[Version, int], newest: Version) -> bool:
    able = [version for version in places if version <= newest]
    if not able or max(places) <= newest:
        return False
    for version, place in places.items():
        (before,) = struct.unpack_from("<H", data, place)
        hidden = 0 if version == max(able) else _HIDDEN
        struct.pack_into("<H", data, place, before & ~_HIDDEN | hidden)
    return True


def _versions(data: bytearray, entry: int, strings: int) -> Iterator[tuple[int, Version]]:
    """The index and numbers of each version of glibc that a library defines."""
    following = 1
    while following:
        index, names, following = struct.unpack_from("<4xH6xII", data, entry)
        name = _text(data, strings + struct.unpack_from("<I", data, entry + names)[0])
        if found := re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", name):
            yield index, version_of(found[1])
        entry += following


def _text(data: bytearray, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def limit_headers(text: str, newest: Version) -> str:
    """The settings of libstdc++'s headers, for functions that this glibc has."""
    return text if newest >= (2, 30) else _CLOCKS.sub(r"/* \1 */", text)


def main(limit: str, root: Path) -> None:
    """Change the libraries and headers below `root`."""
    newest = version_of(limit)
    for library in (file for folder in _FOLDERS for file in root.glob(f"{folder}/*.so*")):
        if library.is_symlink() or not library.is_file():
            continue
        data = bytearray(library.read_bytes())
        if data[:6] == b"\x7fELF\x02\x01" and (changed := limit_library(data, newest)):
            _replace(library, data)
            print(f"{library}: {' '.join(sorted(changed))}")
    for header in root.glob("usr/**/c++/**/bits/c++config.h"):
        before = header.read_text()
        if (text := limit_headers(before, newest)) != before:
            _replace(header, text.encode())


def _replace(file: Path, data: bytes | bytearray) -> None:
    """Programs that run have the old file open."""
    new = file.with_name(f"{file.name}.new")
    shutil.copy2(file, new)
    new.write_bytes(data)
    new.replace(file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
