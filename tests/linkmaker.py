"""Links that a project's folder may have: those that lead out of it, and those that stay."""

from collections.abc import Mapping
from pathlib import Path

KEY = "a key"

# By case: the links by name, the one that is to be refused first. {outside} is a folder beside the
# project's with a file `key` and a folder of that name, {folder} is the project's.
LEAVING: Mapping[str, Mapping[str, str]] = {
    "a file of the system": {"env.txt": "/proc/self/environ"},
    "a file above": {"csrc/key.h": "../../outside/key"},
    "a folder": {"csrc/keys": "../../outside"},
    "nothing outside": {"gone": "../nowhere/gone"},
    "a chain": {"a.h": "b.h", "b.h": "{outside}/key"},
    "an absolute path inside": {"again.py": "{folder}/setup.py"},
    "the folder by its name": {"again.py": "../{name}/setup.py"},
    "a step through another link": {"csrc/deep/key": "s/../../outside/key", "csrc/deep/s": "../.."},
}
STAYING: Mapping[str, str] = {
    "again.py": "setup.py",
    "csrc/up.py": "../setup.py",
    "csrc/round.py": "deep/../../setup.py",
    "chain.py": "again.py",
    "headers": "csrc",
    "csrc/here": ".",
    "gone": "csrc/gone",
    "ring": "ring",
}


def plant(folder: Path, links: Mapping[str, str]) -> str:
    """Make links in a project's folder, which lies beside `outside`; returns the first one's text.

    The folder gets a setup.py and csrc/deep, if it has none.
    """
    outside = folder.with_name("outside")
    outside.mkdir(exist_ok=True)
    (outside / "key").write_text(KEY)
    (folder / "csrc" / "deep").mkdir(parents=True, exist_ok=True)
    if not (folder / "setup.py").exists():
        (folder / "setup.py").write_text("text")
    texts = []
    for name, text in links.items():
        texts.append(text.format(folder=folder, name=folder.name, outside=outside))
        (folder / name).symlink_to(texts[-1])
    return next(iter(texts), "")
