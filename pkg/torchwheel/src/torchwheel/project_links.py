"""Links among the files of a project: each must lead to a place in it."""

import os
from collections.abc import Iterable
from pathlib import Path

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import leads_inside
from torchwheel_runtime.text import escape, quote, shorten_line


def link_stays(folder: Path, link: Path) -> bool:
    """Whether a link below `folder` leads to a place in it, and a copy of both would too.

    A copy has another path, so the link's own text may not lead out. Where it really leads is asked
    as well, as a part of the text may be another link.
    """
    place = Path(os.path.normpath(link.parent.relative_to(folder) / link.readlink()))
    outside = place.is_absolute() or place.parts[:1] == (os.pardir,)
    return not outside and leads_inside(folder, link)


def own_paths(folder: Path, paths: Iterable[Path]) -> set[Path]:
    """Paths below `folder`; for one that leads through a link, the first link on its way.

    What is behind a link has a path of its own, as links stay in the folder.

    Raises:
        UsageError: a path, or a link on the way to it, leads out of the folder.
    """
    first_links: dict[Path, Path | None] = {folder: None}
    depth = len(folder.parts)
    paths = list(paths)
    for path in paths:
        if path.parts[:depth] != folder.parts or os.pardir in path.parts[depth:]:
            # A forged index of git can list such a name.
            name = quote(str(path))
            raise UsageError(f"{folder}: expected the names of its own files, found {name}")
        steps = [path]
        while steps[-1] not in first_links:
            steps.append(steps[-1].parent)
        for step in reversed(steps[:-1]):
            own = step if step.is_symlink() else None
            if own and not link_stays(folder, own):
                where, text = escape(str(folder)), shorten_line(escape(str(own.readlink())))
                raise UsageError(
                    f"{escape(str(own))}: expected a link that stays in {where}, found one to "
                    f"{text}; replace it by the file"
                )
            first_links[step] = first_links[step.parent] or own
    return {first_links[path] or path for path in paths}
