"""Attacks on the cache and the installed libraries of another user, as loops of random acts.

Everything hostile that is planted writes the user who ran it into a log. A planted file that nobody
runs writes nothing.
"""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torchwheel_runtime.files import sha256

ATTACKERS = (54321, 54321, 54322)
"""The users of the attacking processes."""
GOOD, HOSTILE = 1, 666
_LIBRARY = """
#include <fcntl.h>
#include <unistd.h>
#include <stdio.h>
int answer(void) { return ANSWER; }
const char torchwheel_interface[] = "torchwheel_interface=one";
#if ANSWER != 1
__attribute__((constructor)) static void tell(void) {
  int log = open(LOG, O_WRONLY | O_APPEND);
  dprintf(log, "a library as user %d\\n", geteuid());
  close(log);
}
#endif
"""


@dataclasses.dataclass(frozen=True)
class Places:
    """The folders of an attack, below one that all users can enter.

    Attributes:
        sticky: a folder like /tmp, in which the victim has its cache.
        open: a folder that all may write to, in which the victim has another cache.
        loose: a cache that all may write to for moments.
        site: site-packages in a folder that all may write to.
        log: where planted programs and libraries write who ran them.
        good: the right library.
        hostile: the planted library.
    """

    base: Path

    sticky = property(lambda self: self.base / "sticky")
    open = property(lambda self: self.base / "open")
    loose = property(lambda self: self.base / "loose")
    site = property(lambda self: self.base / "site")
    log = property(lambda self: self.base / "log")
    good = property(lambda self: self.base / "good.so")
    hostile = property(lambda self: self.base / "hostile.so")

    @property
    def caches(self) -> tuple[Path, ...]:
        return self.sticky / "cache", self.open / "cache", self.loose

    @property
    def part(self) -> Path:
        return self.site / "pkg" / "one.so"

    def make(self) -> None:
        """Make the folders, the libraries and the log."""
        self.base.chmod(0o755)
        self.log.touch()
        self.log.chmod(0o666)
        for path, answer in ((self.good, GOOD), (self.hostile, HOSTILE)):
            source = path.with_suffix(".c")
            source.write_text(_LIBRARY)
            macros = [f"-DANSWER={answer}", f'-DLOG="{self.log}"']
            command = ["gcc", "-shared", "-fPIC", *macros, str(source), "-o", str(path)]
            subprocess.run(command, check=True)
        self.restore()

    def restore(self) -> None:
        """Replace the folders by new ones, without what was planted."""
        for folder, mode in (
            (self.sticky, 0o1777),
            (self.open, 0o777),
            (self.loose, 0o755),
            (self.site, 0o777),
        ):
            new = folder.with_name(f"new-{folder.name}")
            new.mkdir()
            if folder == self.site:
                (new / "pkg").mkdir()
                shutil.copyfile(self.good, new / "pkg" / self.part.name)
                (new / "pkg").chmod(0o777)
            new.chmod(mode)
            old = folder.with_name(f"old-{folder.name}")
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
            # Attackers may still write below it.
            for _ in range(3):
                shutil.rmtree(old, ignore_errors=True)
            if old.exists():
                old.rename(old.with_name(f"rest-{os.urandom(4).hex()}"))

    def open_loose(self) -> None:
        """Let all write to the loose cache, and to its parts, for a moment."""
        folders = [self.loose, *(path for path in self.loose.iterdir() if path.is_dir())]
        modes = {folder: folder.stat().st_mode & 0o7777 for folder in folders}
        for folder in folders:
            folder.chmod(0o777)
        time.sleep(0.02)
        for folder, mode in modes.items():
            with contextlib.suppress(OSError):
                folder.chmod(mode)


def attack(places: Places, targets: tuple[str, ...], user: int, seed: int, until: float) -> None:
    """Do random acts as `user` until a time. A refused act is no error.

    Args:
        places: the folders.
        targets: the paths that the victim uses below a cache.
        user: the user who attacks.
        seed: of the random acts.
        until: a time of the monotonic clock.
    """
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.umask(0)
    chance = random.Random(seed)
    acts: tuple[Callable[[Places, tuple[str, ...], random.Random], None], ...] = (
        _plant,
        _plant,
        _plant_copy,
        _swap_folder,
        _link_folder,
        _swap_library,
        _swap_library,
        _write_in_place,
        _give_pipe,
    )
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):
            chance.choice(acts)(places, targets, chance)


def _plant_below(cache: Path, target: str, places: Places) -> None:
    """Put hostile files where the victim looks for `target`."""
    folder = cache / target
    folder.mkdir(parents=True, exist_ok=True)
    if target.startswith("toolkits"):
        (folder / "bin").mkdir(exist_ok=True)
        nvcc = folder / "bin" / "nvcc"
        nvcc.write_text(f'#!/bin/sh\necho "nvcc as user `id -u`" >> {places.log}\necho V13.0.88\n')
        nvcc.chmod(0o755)
    elif target.startswith("smoke"):
        site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        site.mkdir(parents=True, exist_ok=True)
        tell = f"echo a .pth file as user `id -u` >> {places.log}"
        (site / "planted.pth").write_text(f"import os; os.system({tell!r})\n")
        (folder / "complete").touch()
    else:
        library = folder / "ext_scale.so"
        shutil.copyfile(places.hostile, library)
        size, digest = library.stat().st_size, sha256(library)
        entry = {"content": folder.name, "name": "ext.scale", "archs": ["9.0"], "toolkit": "CUDA"}
        entry |= {"torch": "2.13", "file": library.name, "size": size, "sha256": digest}
        (folder / "entry.json").write_text(json.dumps(entry))


def _plant(places: Places, targets: tuple[str, ...], chance: random.Random) -> None:
    _plant_below(chance.choice(places.caches), chance.choice(targets), places)


def _plant_copy(places: Places, targets: tuple[str, ...], chance: random.Random) -> None:
    """Take the victim's own folder away, and plant in its place what has its name."""
    cache, target = chance.choice(places.caches), chance.choice(targets)
    folder = cache / target
    folder.rename(folder.with_name(f"away-{os.urandom(4).hex()}"))
    _plant_below(cache, target, places)


def _swap_folder(places: Places, targets: tuple[str, ...], chance: random.Random) -> None:
    """Put a whole cache of one's own in the place of the victim's."""
    cache = chance.choice(places.caches)
    mine = cache.with_name(f"mine-{os.urandom(4).hex()}")
    for target in targets:
        _plant_below(mine, target, places)
    with contextlib.suppress(OSError):
        cache.rename(cache.with_name(f"away-{os.urandom(4).hex()}"))
    mine.rename(cache)


def _link_folder(places: Places, targets: tuple[str, ...], chance: random.Random) -> None:
    """Put a link to a folder of one's own in the place of a folder."""
    cache, target = chance.choice(places.caches), chance.choice(targets)
    elsewhere = places.sticky / f"elsewhere-{os.urandom(4).hex()}"
    _plant_below(elsewhere, target, places)
    place = cache / chance.choice((target, target.split("/")[0], ""))
    with contextlib.suppress(OSError):
        place.rename(place.with_name(f"away-{os.urandom(4).hex()}"))
    place.symlink_to(elsewhere / place.relative_to(cache))


def _swap_library(places: Places, _targets: tuple[str, ...], chance: random.Random) -> None:
    """Swap an installed library, to and fro."""
    part = places.part
    for source in (places.hostile, places.good):
        new = part.with_name(f"new-{os.urandom(4).hex()}")
        shutil.copyfile(source, new)
        new.replace(part)
        time.sleep(chance.random() / 1000)


def _write_in_place(places: Places, _targets: tuple[str, ...], chance: random.Random) -> None:
    """Put a library of one's own in the place of an installed one, then write into it."""
    part = places.part
    good, hostile = places.good.read_bytes(), places.hostile.read_bytes()
    new = part.with_name(f"new-{os.urandom(4).hex()}")
    new.write_bytes(good)
    new.replace(part)
    for data in (hostile, good):
        with part.open("r+b") as file:
            file.write(data)
        time.sleep(chance.random() / 1000)


def _give_pipe(places: Places, targets: tuple[str, ...], chance: random.Random) -> None:
    """A reader of a pipe waits for ever."""
    place = chance.choice(
        (places.part, *(cache / target for cache in places.caches for target in targets))
    )
    pipe = place.with_name(f"pipe-{os.urandom(4).hex()}")
    os.mkfifo(pipe)
    pipe.replace(place)
