"""`torchwheel adopt`: gives a foreign project its matrix, sessions and workflows."""

import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from packaging.version import Version

from torchwheel.evidence.policy import CALLER
from torchwheel.inspect.build_script import BuildScript, hard_coded_archs
from torchwheel.matrix.document import MatrixError
from torchwheel.matrix.load import parse
from torchwheel.matrix.variants import python_tag
from torchwheel.pipeline import git
from torchwheel.scaffold.foreign import ForeignProject
from torchwheel.scaffold.templates import CARRIED, carried_files, render_templates
from torchwheel.text_files import read_text
from torchwheel_runtime.arch.releases import ToolkitRelease, torch_releases
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import write_atomically
from torchwheel_runtime.json_files import read_bounded
from torchwheel_runtime.text import escape, join_names, quote
from torchwheel_runtime.versions import version_numbers

CUDA = "13.0"
"""The toolkit of a new matrix: PyPI has it, so that no root and no container is needed."""
_ARCHS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0+PTX")
_TORCH_MINORS = 2
# The newest Python that an image can be made with here.
_NEWEST_PYTHON = "3.14"
_USUAL_PYTHON = "3.12"
_GITIGNORE = ".gitignore"
_IGNORED = ("/dist/", "/.nox/", "/release/")

NOXFILE, _YANKED = "noxfile.py", "yanked.yaml"
PLACEHOLDER = "OWNER/torchwheel@COMMIT"
"""Stands for the repository that has torchwheel's workflows, and a commit of it."""
_TAGS = re.compile(r"[{,\s]tags:( *\[[^\]]*\]| *\S.*|(?:\s*- .*)+)")

Action = Literal["written", "unchanged", "replaced", "extended"]


@dataclasses.dataclass(frozen=True)
class PlannedFile:
    """A file of the adopted project, and what its writing does to the one that is there."""

    path: str
    content: bytes
    action: Action


def project_files(
    project: ForeignProject, source: str, wheels: Sequence[Path] = (), workflows: str = ""
) -> Mapping[str, bytes]:
    """The files that a project is given, by path.

    Args:
        project: the project.
        source: where the matrix finds it: ".", "NAME==VERSION" or "git+https://…@REF".
        wheels: torchwheel's own, the run-time half's first, for a project that carries them with
            copies of the workflows; empty for one that calls ours.
        workflows: the repository and the commit of ours: OWNER/NAME@COMMIT.

    Raises:
        UsageError: `workflows` names no commit.
    """
    if workflows and not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", workflows, re.ASCII):
        raise UsageError(
            f"--workflows: expected OWNER/NAME@COMMIT with 40 hexadecimal digits, as a branch or a "
            f"tag may move, found {quote(workflows)}"
        )
    values = {
        "project": project.declared.name,
        "package": project.declared.name,
        "first_session": "matrix",
        "workflows": workflows or PLACEHOLDER,
    }
    shared = render_templates("shared", values)
    texts = {
        **(shared if wheels else render_templates("caller", values)),
        _YANKED: shared[_YANKED],
        "matrix.yaml": matrix_text(project, source, wheels[0].name if wheels else ""),
    }
    encoded = {path: text.encode() for path, text in texts.items()}
    return {**encoded, **(carried_files(wheels) if wheels else {})}


def place_of(folder: Path) -> tuple[Path, str]:
    """Where the files of a project go, and `source` of its matrix: the top of its repository.

    A forge reads workflows there alone. What git does not know has its files in its own folder.
    """
    folder = folder.resolve()
    top = git.root(folder)
    if top is None or next(git.files(folder, tracked=True), None) is None:
        return folder, "."
    return top, folder.relative_to(top).as_posix()


def notes(folder: Path, into: Path, files: Collection[str]) -> list[tuple[str, str]]:
    """What is special about the place of a project, each with what it means or what to do.

    Args:
        folder: the project's.
        into: the folder that gets the files.
        files: their paths.
    """
    found = []
    top, below = place_of(folder)
    if below != "." and top == into.resolve():
        found.append(("folder", f"{below} of its repository, whose top gets the files"))
    if empty := git.empty_submodules(top):
        do = "`git submodule update --init --recursive` fetches them, as the workflows do"
        found.append(("submodules", f"no files of {join_names(empty)}; {do}"))
    if git.decides_version(folder):
        now = git.version(folder) or "none: no checkout"
        found.append(("version", f"of git's tags, now {now}; builds get it by a PKG-INFO"))
    if CALLER in files:
        if NOXFILE not in files:
            found.append((NOXFILE, "is yours and stays; `torchwheel` itself does without it"))
        workflows = sorted((into / CALLER).parent.glob("*.y*ml"))
        found += [
            (
                file.name,
                f"runs on tags such as v1.0 as well; a tag starts it and {Path(CALLER).name}",
            )
            for file in workflows
            if file.name != Path(CALLER).name and _starts_on_tags(file)
        ]
    return found


def _starts_on_tags(file: Path) -> bool:
    """Whether a workflow names tags that a release has."""
    text = read_text(file) if file.is_file() else ""
    return any(re.search(r"""[\s'"\[,][v*]""", found[1]) for found in _TAGS.finditer(text))


def plan(folder: Path, files: Mapping[str, bytes], replace: Collection[str]) -> list[PlannedFile]:
    """What writing `files` into a folder does.

    Args:
        folder: the project's.
        files: content by path.
        replace: paths that may be replaced; "all" allows every one.

    Raises:
        UsageError: a file is there with other content, or a link or a folder; nothing was written.
    """
    planned: list[PlannedFile] = []
    in_the_way: list[str] = []
    _check_places(folder, [*files, _GITIGNORE])
    for path, content in sorted(files.items()):
        target = folder / path
        if not target.exists():
            planned.append(PlannedFile(path, content, "written"))
        elif read_bounded(target) == content:
            planned.append(PlannedFile(path, content, "unchanged"))
        elif path in replace or "all" in replace:
            planned.append(PlannedFile(path, content, "replaced"))
        else:
            in_the_way.append(path)
    if in_the_way:
        options = " ".join(f"--replace {path}" for path in in_the_way)
        raise UsageError(
            f"{folder}: expected none of {join_names(in_the_way)}, found other files of these "
            f"names; nothing was written. Move them away, or pass {options}"
        )
    return [*planned, *_ignore(folder)]


def may_write(target: Path, files: Mapping[str, bytes], replace: Collection[str]) -> bool:
    """Whether a file is not there, is equal, or may be replaced."""
    free = target.name in replace or "all" in replace or not os.path.lexists(target)
    return free or (target.is_file() and read_bounded(target) == files[target.name])


def _check_places(folder: Path, paths: Iterable[str]) -> None:
    """Refuse paths that lead through a link, or where something else than a file is.

    A link may lead out of the project, so nothing is written through one.
    """
    odd: set[str] = set()
    for path in paths:
        *above, place = reversed([PurePosixPath(path), *PurePosixPath(path).parents][:-1])
        for parent in above:
            found = folder / parent
            if found.is_symlink() or (found.exists() and not found.is_dir()):
                odd.add(str(parent))
        target = folder / place
        if target.is_symlink() or (target.exists() and not target.is_file()):
            odd.add(path)
    if odd:
        raise UsageError(
            f"{folder}: expected folders and files of its own, found a link or something else at "
            f"{join_names(sorted(odd))}; nothing was written. Move it away"
        )


def _ignore(folder: Path) -> Sequence[PlannedFile]:
    """.gitignore with the outputs of the sessions, which are no sources."""
    file = folder / _GITIGNORE
    before = file.read_bytes() if file.is_file() else b""
    lines = before.decode(errors="replace").splitlines()
    missing = [one for one in _IGNORED if one not in lines and one.strip("/") not in lines]
    if not missing:
        return ()
    gap = b"\n" if before and not before.endswith(b"\n") else b""
    content = before + gap + "".join(f"{one}\n" for one in missing).encode()
    return [PlannedFile(_GITIGNORE, content, "extended" if before else "written")]


def write_files(folder: Path, planned: Sequence[PlannedFile]) -> None:
    """Write the files of a plan, each completely or not at all."""
    for one in planned:
        if one.action != "unchanged":
            with write_atomically(folder / one.path) as temporary:
                temporary.write_bytes(one.content)


def report(
    project: ForeignProject,
    folder: Path,
    planned: Sequence[PlannedFile],
    notes: Sequence[tuple[str, str]] = (),
) -> str:
    """What was read of a project, what a person must look up, and what was done to each file."""
    declared, script = project.declared, project.script
    archs = " ".join(str(one) for one in script.archs) or f"none; {_who_decides(script)}"
    set_here = [f"{one.name}={one.on} ({one.place})" for one in script.variables if one.is_set]
    others = [str(one) for one in script.variables if not one.is_set]
    asked = [f"{one}: {one.answer or 'nobody answers'}" for one in script.questions]
    rows = (
        ("project", f"{declared.name}, built by {declared.backend}"),
        (
            "extensions",
            join_names(one.name or f"one at {one.place}" for one in script.extensions)
            or "none spelled out",
        ),
        ("archs", f"hard-coded: {archs}"),
        ("variables set", join_names(set_here) or "none is known to turn kernels on"),
        ("other variables", join_names(others) or "none"),
        ("GPU questions", join_names(asked) or "none"),
        ("wheel", str(declared.tag)),
        ("torch", _torch_text(project)),
        ("packages", " ".join(project.imports) or "none found: fill in build.imports"),
        ("tests", project.tests or "none found: the wheel is tried by its imports"),
        ("requirements", " ".join(project.build_requires) or "as declared"),
        *notes,
    )
    lines = [f"{name:<16} {escape(value)}" for name, value in rows]
    if not project.cuda:
        lines.append(f"{'CUDA':<16} no CUDA source was found; is this an extension for GPUs?")
    if script.cmake:
        lines.append(
            f"{'CMake':<16} compiles it, for the archs of CUDAARCHS and TORCH_CUDA_ARCH_LIST; "
            "build.shards cannot divide that"
        )
    lines += [f"{'TODO':<16} {escape(one)}" for one in project.todo]
    return "\n".join([*lines, *(f"{one.action:<16} {folder / one.path}" for one in planned)])


def matrix_text(project: ForeignProject, source: str, wheel: str) -> str:
    """matrix.yaml of a project: what was read of it, and a TODO for each thing that code decides.

    Args:
        project: the project.
        source: where builds find it.
        wheel: the name of the run-time half's wheel, if it carries one.
    """
    archs, archs_by = hard_coded_archs(project.script, ToolkitRelease("cuda", CUDA))
    declared, script = project.declared, project.script
    python = declared.tag.python
    minors = _torch_minors(project)
    values = {
        "package": declared.name,
        "project": declared.name,
        "source": _yaml(source),
        "carried": f"{CARRIED}/{wheel}" if wheel else "",
        "ordinary": ", ".join(
            [
                *([f"python: {python}"] if python != "each" else []),
                *([f'stable: "{script.stable.name}"'] if script.stable else []),
            ]
        ),
        "serves": f"one for every torch from {script.stable.name} on"
        if script.stable
        else "for each torch minor",
        "toolkit": ToolkitRelease("cuda", CUDA).name,
        "cuda": CUDA,
        "toolkits": f"[{ToolkitRelease('cuda', CUDA).name}]",
        "archs": _yaml([*map(str, archs)] or _ARCHS),
        "archs_by": archs_by,
        "divisible": not script.cmake,
        "requires": _yaml(project.build_requires),
        "environment": _yaml(_environment(script)),
        "switches": [
            str(one) for one in script.variables if not one.is_set and one.name.isidentifier()
        ],
        "imports": _yaml(project.imports),
        "tests": _yaml(project.tests) if project.tests else None,
        "test_requires": _yaml(("pytest", *project.test_requires)),
        "torch": {minor: _yaml(pythons) for minor, pythons in minors.items()},
        "first": _first_variant(project, minors),
        "todo": [escape(one) for one in project.todo],
    }
    text = render_templates("adopted", values)["matrix.yaml"]
    try:
        parse(text, "matrix.yaml")
    except MatrixError as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{declared.name}: expected what a matrix can say, found: {first}; nothing was written"
        ) from error
    return text


def _environment(script: BuildScript) -> dict[str, str]:
    """The variables that turn a project's kernels on; options of CMake are in CMAKE_ARGS.

    Where setup.py starts CMake, it gets ninja: an image has no make.
    """
    found = [one for one in script.variables if one.is_set]
    options = [f"-D{one.name}={one.on}" for one in found if one.given == "CMake"]
    variables = {one.name: one.on for one in found if one.given == "environment"}
    if "cmake" in script.modules:
        variables["CMAKE_GENERATOR"] = "Ninja"
    return variables | ({"CMAKE_ARGS": " ".join(options)} if options else {})


def _who_decides(script: BuildScript) -> str:
    """Who decides on the archs of a project that hard-codes none."""
    if script.own_archs:
        return "the project sets them"
    names = join_names(str(one) for one in script.variables if one.names_archs)
    return f"TORCH_CUDA_ARCH_LIST decides{f', or {names}' if names else ''}"


def _yaml(value: object) -> str:
    """A value as JSON, which YAML is; but YAML knows no characters in two halves."""
    return json.dumps(value, ensure_ascii=False)


def _torch_minors(project: ForeignProject) -> dict[str, list[str]]:
    """The newest torch minors that the project wants, each with the Pythons that build wheels.

    For a project that keeps to the stable ABI it is the oldest minor, which serves the later ones.
    The Pythons are those of both, or the oldest of them where one wheel serves all.
    """
    declared, major = project.declared, version_numbers(CUDA)[0]
    stable = project.script.stable
    found: dict[str, list[str]] = {}
    for minor, facts in reversed(list(torch_releases().items())):
        pythons = [
            one
            for one in facts.pythons
            if declared.python.contains(f"{one}.99")
            and Version(one) <= Version(_NEWEST_PYTHON)
            # setuptools makes no abi3 wheel in an older Python than its tag names.
            and Version(one) >= Version(declared.tag.oldest or "3")
        ]
        fits = declared.torch.contains(f"{minor}.0") or declared.torch.contains(f"{minor}.99")
        if stable:
            built = facts.pypi is not None and version_numbers(facts.pypi)[0] == major
            fits = fits and built and version_numbers(minor) >= version_numbers(stable.name)
        enough = not stable and len(found) == _TORCH_MINORS
        if major in facts.majors("cuda") and pythons and fits and not enough:
            found[minor] = pythons if declared.tag.python == "each" else pythons[:1]
    if not found:
        served = [one for one, facts in torch_releases().items() if major in facts.majors("cuda")]
        oldest = f" from {declared.tag.oldest} on" if declared.tag.oldest else ""
        raise UsageError(
            f"{declared.name}: expected a torch that was published for CUDA {major}, {served[0]} "
            f"to {served[-1]}, and a Python of it up to {_NEWEST_PYTHON}, found "
            f"torch{declared.torch} with Python{declared.python}{oldest}; widen what the project "
            "requires"
        )
    if project.script.stable:
        # The oldest serves all; the torch that is installed must be of the toolkit's CUDA.
        found = dict([list(found.items())[-1]])
    return dict(reversed(found.items()))


def _torch_text(project: ForeignProject) -> str:
    """Which torch one wheel serves."""
    if target := project.script.stable:
        by = f"TORCH_TARGET_VERSION of {target.place}"
        return f"one for every torch from {target.name} on, by {by}"
    return "one for each minor"


def _first_variant(project: ForeignProject, minors: Mapping[str, Sequence[str]]) -> str:
    minor, pythons = list(minors.items())[-1]
    usual = _USUAL_PYTHON if _USUAL_PYTHON in pythons else pythons[-1]
    tag = {"each": python_tag(usual), "abi3": "abi3", "any": "py3"}[project.declared.tag.python]
    release = "stable" if project.script.stable else f"torch{minor}"
    return f"{ToolkitRelease('cuda', CUDA).name}-{release}-{tag}"
