"""Replays the recorded writes of a program as a power cut may leave them on a disk.

strace records what the program does to a folder. After a power cut at any moment, the disk has

- all that was synced: the content of a file by fsync of the file, a name by fsync of its folder,
  both by syncfs of the disk;
- any part of the rest, in any order. A rename is there or not, and an exchange too.

A file that has content that was not synced is torn. This is less than any file system promises.
"""

import dataclasses
import itertools
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = 0
TORN = "torn"
_CALLS = (
    "openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,"
    "unlink,unlinkat,rmdir,write,pwrite64,writev,sendfile,copy_file_range,ftruncate,fsync,"
    "fdatasync,syncfs"
)
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)(?:<(.*)>)?")
_ARGUMENT = re.compile(r'(?:[\w-]+<([^>]*)>|"((?:[^"\\]|\\.)*)"(?:\.\.\.)?|([^,]+))(?:, |$)')

Change = tuple[int, str, int | None]
"""A folder, a name in it, and what the name leads to from now on."""
Tree = dict[str, object]
"""Content of files by their paths; `TORN` of a file that is not whole."""


@dataclasses.dataclass(frozen=True)
class Event:
    """One thing that was done.

    Attributes:
        changes: names that changed, all of them or none.
        wrote: the file that got content.
        synced: the file or folder that was synced.
    """

    changes: tuple[Change, ...] = ()
    wrote: int | None = None
    synced: int | None = None


class Disk:
    """A folder tree as the program saw it, and everything that the program did to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folders: dict[int, dict[str, int]] = {ROOT: {}}
        self.files: set[int] = set()
        self.events: list[Event] = []
        self._inodes: dict[int, int] = {}  # hard links are one file
        self._numbers = itertools.count(1)
        self._load(folder, ROOT)
        self.before = {number: dict(names) for number, names in self.folders.items()}

    def _load(self, folder: Path, number: int) -> None:
        for path in folder.iterdir():
            inode = path.lstat().st_ino
            known = self._inodes.get(inode)
            if known is None:
                known = self._inodes[inode] = next(self._numbers)
                if path.is_dir() and not path.is_symlink():
                    self.folders[known] = {}
                    self._load(path, known)
                else:
                    self.files.add(known)
            self.folders[number][path.name] = known

    def _find(self, path: str) -> tuple[int, str] | None:
        """The number of a path's folder, and its name there; None outside the tree."""
        if not path.startswith(f"{self.folder}/"):
            return None
        *parents, name = path.removeprefix(f"{self.folder}/").split("/")
        number = ROOT
        for parent in parents:
            number = self.folders[number].get(parent, -1)
            if number not in self.folders:
                return None
        return number, name

    def _number(self, path: str) -> int | None:
        if path == str(self.folder):
            return ROOT
        place = self._find(path)
        return self.folders[place[0]].get(place[1]) if place else None

    def _do(self, *changes: Change) -> None:
        for folder, name, number in changes:
            if number is None:
                self.folders[folder].pop(name, None)
            else:
                self.folders[folder][name] = number
        self.events.append(Event(changes=changes))

    def record(self, line: str) -> None:
        """Add one line of strace."""
        match = _CALL.match(line)
        if match is None or match[3].startswith("-"):
            return
        call, result = match[1], match[4]
        arguments = [(handle, text, other) for handle, text, other in _ARGUMENT.findall(match[2])]
        paths = list(_paths(arguments))
        if call in ("write", "pwrite64", "writev", "ftruncate", "sendfile"):
            self._wrote(arguments[0][0])
        elif call == "copy_file_range":
            self._wrote(arguments[2][0])
        elif call in ("fsync", "fdatasync"):
            number = self._number(arguments[0][0])
            if number is not None:
                self.events.append(Event(synced=number))
        elif call == "syncfs":
            every = (*self.folders, *self.files)
            self.events += [Event(synced=number) for number in every]
        elif call in ("openat", "open", "creat"):
            place = self._find(result or "")
            creates = place and ("O_CREAT" in match[2] or call == "creat")
            if place and creates and place[1] not in self.folders[place[0]]:
                number = next(self._numbers)
                self.files.add(number)
                self._do((*place, number))
            if place and "O_TRUNC" in match[2]:
                self._wrote(result or "")
        elif any(map(self._find, paths)):
            self._change(call, paths, match[2])

    def _change(self, call: str, paths: Sequence[str], text: str) -> None:
        places = [self._find(path) for path in paths]
        if None in places:
            raise AssertionError(f"leads out of {self.folder}: {call}({text})")
        first, *others = [place for place in places if place]
        number = self.folders[first[0]].get(first[1])
        if call.startswith(("mkdir", "symlink")):
            new = next(self._numbers)
            if call.startswith("mkdir"):
                self.folders[new] = {}
            else:
                self.files.add(new)
            self._do((*first, new))
        elif call.startswith(("unlink", "rmdir")):
            self._do((*first, None))
        elif call.startswith("link"):
            self._do((*others[0], number))
        elif "RENAME_EXCHANGE" in text:
            self._do((*others[0], number), (*first, self.folders[others[0][0]][others[0][1]]))
        else:
            self._do((*others[0], number), (*first, None))

    def _wrote(self, path: str) -> None:
        number = self._number(path)
        if number in self.files:
            self.events.append(Event(wrote=number))


def _paths(arguments: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Absolute paths of a call's arguments; a path may be relative to the folder before it."""
    base = ""
    for handle, text, _ in arguments:
        if handle:
            base = handle
        elif text:
            yield os.path.normpath(Path(base, text))
            base = ""


def record(folder: Path, command: Sequence[str]) -> Disk:
    """Run a program and record what it does to `folder`, which has synced content."""
    disk = Disk(folder)
    log = folder.with_name(f"{folder.name}.strace")
    strace = [shutil.which("strace") or "strace", "-f", "-y", "-qq", "-s", "4096"]
    done = subprocess.run(
        [*strace, "-e", f"trace={_CALLS}", "-o", str(log), *command],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for line in log.read_text(errors="replace").splitlines():
        disk.record(line)
    return disk


def states(disk: Disk, chance: random.Random, samples: int = 30) -> Iterator[tuple[str, Tree]]:
    """What the disk may have after a power cut: a description, and the tree."""
    for moment in range(len(disk.events) + 1):
        past = disk.events[:moment]
        pending = _pending(past)
        torn = _torn(past)
        for kept in _subsets(pending, chance, samples):
            lost = [past[number].changes for number in pending if number not in kept]
            yield (
                f"cut after {moment} of {len(disk.events)}, lost: {lost}, torn: {sorted(torn)}",
                _tree(disk, past, frozenset(pending) - frozenset(kept), torn),
            )


def without_a_cut(disk: Disk) -> Tree:
    """What the program leaves if the power stays."""
    return _tree(disk, disk.events, frozenset(), set())


def _pending(past: Sequence[Event]) -> list[int]:
    """The changes of names that are not synced."""
    return [
        number
        for number, event in enumerate(past)
        if event.changes
        and any(
            all(later.synced != folder for later in past[number + 1 :])
            for folder, _, _ in event.changes
        )
    ]


def _torn(past: Sequence[Event]) -> set[int]:
    torn = set()
    for event in past:
        if event.wrote is not None:
            torn.add(event.wrote)
        torn.discard(event.synced if event.synced is not None else -1)
    return torn


def _subsets(
    pending: Sequence[int], chance: random.Random, samples: int
) -> Iterator[frozenset[int]]:
    """Every subset if there are few; else all beginnings, all but one, one alone, and samples."""
    if 2 ** len(pending) <= samples:
        for size in range(len(pending) + 1):
            yield from map(frozenset, itertools.combinations(pending, size))
        return
    whole = frozenset(pending)
    yield from (whole - {number} for number in pending[-samples:])
    yield from (frozenset({number}) for number in pending[-samples:])
    yield from (frozenset(pending[: len(pending) - size]) for size in range(samples))
    for _ in range(samples):
        yield frozenset(number for number in pending if chance.random() < 0.5)


def _tree(disk: Disk, past: Sequence[Event], lost: frozenset[int], torn: set[int]) -> Tree:
    folders = {number: dict(names) for number, names in disk.before.items()}
    for number, event in enumerate(past):
        if number not in lost:
            for folder, name, leads_to in event.changes:
                names = folders.setdefault(folder, {})
                if leads_to is None:
                    names.pop(name, None)
                else:
                    names[name] = leads_to
    versions = [event.wrote for event in past]
    tree: Tree = {}

    def walk(folder: int, path: str) -> None:
        for name, number in folders.get(folder, {}).items():
            if number in disk.files:
                content = TORN if number in torn else (number, versions.count(number))
                tree[f"{path}{name}"] = content
            else:
                tree[f"{path}{name}/"] = ""
                walk(number, f"{path}{name}/")

    walk(ROOT, "")
    return tree


def below(tree: Tree, name: str) -> Tree:
    """The part of a tree below a folder, or the file `name`; empty if the name is away."""
    found = {path: content for path, content in tree.items() if path.startswith(f"{name}/")}
    return found or ({name: tree[name]} if name in tree else {})
