"""Where a project's sources are: a folder, an sdist, a release of the index, a git reference."""

import dataclasses
import re
from typing import Literal

SDIST_ENDINGS = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")
_RELEASE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.!+-]*)")
# A reference that begins with a dash would be an option of git.
_GIT = re.compile(r"git\+((?:https|file)://[^@\s]+)@([A-Za-z0-9_][A-Za-z0-9._/-]*)")

SourceKind = Literal["folder", "sdist", "release", "git"]


@dataclasses.dataclass(frozen=True)
class ProjectSource:
    """The place of a project's sources.

    Attributes:
        kind: folder and sdist lie beside matrix.yaml; release is of the package index.
        place: the path; of a release the project's name; of git the repository's address.
        version: of a release; of git the branch, tag or commit.
    """

    kind: SourceKind
    place: str
    version: str = ""


def parse_source(text: str) -> ProjectSource:
    """Read `project.source`; any other text is a folder."""
    if match := _GIT.fullmatch(text):
        return ProjectSource("git", match[1], match[2])
    if match := _RELEASE.fullmatch(text):
        return ProjectSource("release", match[1], match[2])
    if text.endswith(SDIST_ENDINGS):
        return ProjectSource("sdist", text)
    return ProjectSource("folder", text)
