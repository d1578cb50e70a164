"""The front page of an index: the command for each machine, and what every wheel was seen to do."""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence

from packaging.tags import parse_tag

from torchwheel.index.groups import CPU, TorchBuild, accepts, torch_builds
from torchwheel.index.listing import File, Index, IndexGroup
from torchwheel_runtime.claims import Claims

ANY = "any"
"""For a torch that need not be named, or a Python."""


_RANKS = {"universal": 0, "pure": 1}
"""Which wheels are listed first."""


@dataclasses.dataclass(frozen=True)
class InstallCommand:
    """How to install a project on one kind of machine.

    Attributes:
        toolkit: of the machine's torch, as people know it: "CUDA 13.0", "CPU".
        torch: its minor; `ANY` if there is none, or any will do.
        python: the minor of Python that the wheel is for, or `ANY`.
        group: the index, e.g. "cu130/torch2.11".
        requirement: what to install from it, e.g. "fusedops==1.0.0".
        files: the wheel that this installs, by machine: "x86_64", or `ANY`.
        small: whether the wheel serves this torch alone.
        missing: what it requires and the index does not have, e.g. ("einops>=0.7",).
    """

    toolkit: str
    torch: str
    python: str
    group: str
    requirement: str
    files: Mapping[str, str]
    small: bool
    missing: tuple[str, ...] = ()

    def text(self, installer: str, address: str) -> str:
        """The command, of pip or uv.

        Args:
            installer: "pip" or "uv".
            address: of the index's root, with a slash at its end.
        """
        return install_command(
            f"{address}{self.group}/", self.requirement, self.missing, installer=installer
        )


def install_command(
    index: str, requirement: str, missing: Sequence[str] = (), *, installer: str = "pip"
) -> str:
    """The command by which pip or uv installs what an index has, beside the torch that is there.

    It asks this index alone: nobody else can offer the names, and no other torch is found. An index
    has all that torchwheel's own wheels bring; what others require and it lacks comes first, from
    the usual index.
    """
    # UV_DEFAULT_INDEX, where it is set, counts for more than uv's --index-url.
    install, only = {
        "pip": ("pip install", "--index-url"),
        "uv": ("uv pip install", "--default-index"),
    }[installer]
    first = f"{install} {shlex.join(missing)} && " if missing else ""
    return f'{first}{install} {only} {index} "{requirement}"'


@dataclasses.dataclass(frozen=True)
class Front:
    """All that the front page says of one project.

    Attributes:
        project: its name.
        version: the newest one that is offered.
        choices: how to install it.
        wheels: of that version, the universal one first.
        torches: each torch minor, the libraries that serve it, and its builds that have a group.
    """

    project: str
    version: str
    choices: tuple[InstallCommand, ...]
    wheels: tuple[File, ...]
    torches: tuple[tuple[str, str, tuple[str, ...]], ...]

    def values(self, field: str) -> tuple[str, ...]:
        """The different values of a choice's field, in their order."""
        return tuple(dict.fromkeys(getattr(choice, field) for choice in self.choices))


def fronts(index: Index) -> Iterator[Front]:
    """A front for each project whose wheels have claims, of the newest version that is offered."""
    for project, every in index.whole.projects.items():
        if files := [file for file in every if file.wheel.claims and not file.is_withdrawn]:
            yield _front(index, project, files)


def _front(index: Index, project: str, every: Sequence[File]) -> Front:
    final = [file for file in every if not file.version.is_prerelease] or every
    newest = final[0].public  # the newest file comes first
    files = [file for file in every if file.public == newest]
    files.sort(key=lambda file: (_RANKS.get(file.kind.abi, 2) if file.kind else 3, file.wheel.file))
    return Front(
        project,
        newest,
        tuple(_choices(index, project, files)),
        tuple(files),
        tuple(_torches(index, files)),
    )


def _choices(index: Index, project: str, files: Sequence[File]) -> Iterator[InstallCommand]:
    builds = {build.group: build for build in torch_builds()}
    groups = [group for group in index.groups if group.name in builds or group.name == CPU]
    groups.sort(key=lambda group: _order(builds.get(group.name)))
    for group in groups:
        build = builds.get(group.name)
        listed = set(group.projects.get(project, ()))
        own = [file for file in files if file in listed]
        # The wheels that pip takes for the version alone come first: the universal one, mostly.
        named = {file for file in own if file in group.yanked and file.version.local}
        wanted = [
            (f"{project}=={file.version.public}", file, False)
            for file in _wheels_for_all(group, own)
        ]
        wanted += [(f"{project}=={file.version}", file, True) for file in own if file in named]
        missing = tuple(sorted({text for file in own for text in group.missing(file)}))
        found: dict[tuple[str, str, bool], dict[str, str]] = {}
        for requirement, file, small in wanted:
            machines = [ANY if machine == "any" else machine for machine in sorted(file.machines)]
            for python in _pythons(file):
                by_machine = found.setdefault((python, requirement, small), {})
                by_machine.update(dict.fromkeys(machines, file.wheel.file))
        toolkit, torch = (str(build.toolkit), build.torch) if build else ("CPU", ANY)
        for (python, requirement, small), by_machine in found.items():
            yield InstallCommand(
                *(toolkit, torch, python, group.name, requirement, by_machine, small),
                missing=missing,
            )


def _wheels_for_all(group: IndexGroup, files: Sequence[File]) -> Sequence[File]:
    """The wheels that a group gives to everybody: no pure one where there is a native one."""
    open_to_all = [file for file in files if file not in group.yanked]
    return [file for file in open_to_all if "any" not in file.machines] or open_to_all


def _pythons(file: File) -> list[str]:
    interpreters = {tag.interpreter for text in file.wheel.tags for tag in parse_tag(text)}
    stable = any(tag.split("-")[1] == "abi3" for tag in file.wheel.tags)
    minors = sorted(int(name[3:]) for name in interpreters if name.startswith("cp3"))
    return [ANY] if stable or not minors else [f"3.{minor}" for minor in minors]


def _order(build: TorchBuild | None) -> tuple[object, ...]:
    """CUDA, then ROCm, then the CPU; the newest first."""
    if build is None:
        return (2,)
    numbers = [int(part) for part in (*build.toolkit.version.split("."), *build.torch.split("."))]
    return build.toolkit.backend != "cuda", *(-number for number in numbers)


def archs_of(claims: Claims) -> list[str]:
    """The archs of each toolkit or library with kernels: "cu130: 8.0 9.0"."""
    named = [(part.name, part.archs) for part in claims.parts if part.kind == "kernels"]
    found = named or [(claims.toolkit or "", claims.archs)]
    return [f"{name}: {' '.join(map(str, archs))}" for name, archs in found if archs]


def _torches(index: Index, files: Sequence[File]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    names = {group.name for group in index.groups}
    builds = torch_builds()
    parts = [part for file in files if file.wheel.claims for part in file.wheel.claims.parts]
    for minor in dict.fromkeys(build.torch for build in builds):
        own = [build.toolkit.name for build in builds if build.torch == minor]
        served = tuple(name for name in own if f"{name}/torch{minor}" in names)
        front_ends = [
            part.name
            for part in parts
            if part.kind == "front_end" and accepts(part.needs.torch_range, minor)
        ]
        if served:
            yield minor, ", ".join(dict.fromkeys(front_ends)), served
