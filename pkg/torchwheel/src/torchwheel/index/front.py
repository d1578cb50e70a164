"""The front page of an index: the command for each machine, and what every wheel was seen to do."""

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from packaging.tags import parse_tag

from torchwheel.index.catalogue import About
from torchwheel.index.groups import CPU, TorchBuild, accepts, torch_builds
from torchwheel.index.listing import File, Index, IndexGroup
from torchwheel.index.needs import needs_of_claims
from torchwheel_runtime.arch.model import BRANDS, Arch, CudaArch
from torchwheel_runtime.arch.releases import gpu_names, torch_releases
from torchwheel_runtime.versions import version_numbers

ANY = "any"
"""For a torch that need not be named, or a Python."""


_RANKS = {"universal": 0, "pure": 1}
"""Which wheels are listed first."""

_USUAL_PYTHON = "3.12"
"""The Python of the commonest set-up."""


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
            installer: "pip", "uv", or "uv by label" for what uv chooses by labels.
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
        "uv by label": ("uv --preview-features wheel-variants pip install", "--default-index"),
    }[installer]
    first = f"{install} {shlex.join(missing)} && " if missing else ""
    return f'{first}{install} {only} {index} "{requirement}"'


@dataclasses.dataclass(frozen=True)
class Front:
    """All that the front page says of one project.

    Attributes:
        project: its name.
        version: the newest one that is offered.
        about: what its wheels tell of it.
        torches: the releases of torch that its wheels are for: "2.6 or later", "2.9 to 2.11".
        one: how to install it, if one wheel serves everybody or there is one alone.
        choices: how to install what serves a certain machine; none that does the same as `one`.
        wheels: of that version, the universal one first, those with labels last.
    """

    project: str
    version: str
    about: About
    torches: str
    one: InstallCommand | None
    choices: tuple[InstallCommand, ...]
    wheels: tuple[File, ...]

    @property
    def labelled(self) -> tuple[File, ...]:
        """The wheels that uv chooses from, if it is told to."""
        return tuple(file for file in self.wheels if file.label)

    def values(self, field: str) -> tuple[str, ...]:
        """The different values of a choice's field: toolkits in their order, the newest first."""
        found = dict.fromkeys(getattr(choice, field) for choice in self.choices)
        if field == "toolkit":
            return tuple(found)
        return tuple(
            sorted(found, key=lambda one: (one == ANY, version_numbers(one)), reverse=True)
        )

    @property
    def usual(self) -> InstallCommand:
        """The choice for the commonest set-up."""
        return _usual(self.choices)

    @property
    def kernels(self) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        """The archs that each toolkit's kernels are for, and what people call a GPU of each.

        E.g. (("CUDA 13.0", (("8.0", "A100"), ("12.0+PTX", "RTX 50"))),).
        """
        claims = (file.wheel.claims for file in self.wheels)
        every = (kernels for one in claims if one for kernels in needs_of_claims(one).kernels)
        found = {
            (BRANDS[one.backend], version_numbers(one.release), one.release, one.archs)
            for one in every
            if one.archs
        }
        return tuple(
            (f"{brand} {release}", tuple((str(arch), _gpu_name(arch)) for arch in archs))
            for brand, _, release, archs in sorted(found)
        )

    @property
    def check(self) -> str:
        """The command that shows whether what was installed works; empty if it is not known."""
        if self.about.doctor:
            return f"python -m {self.about.module}"
        return f'python -c "import torch, {self.about.module}"' if self.about.module else ""


def fronts(index: Index) -> Iterator[Front]:
    """A front for each project whose wheels have claims, of the newest version that is offered."""
    for project, every in index.whole.projects.items():
        files = [file for file in every if file.wheel.claims and not file.is_withdrawn]
        # What pip and uv take without a label serves every installer.
        if any(not file.label for file in files) and not index.quarantined(project):
            yield _front(index, project, files)


def _front(index: Index, project: str, every: Sequence[File]) -> Front:
    usual = [file for file in every if not file.label]
    final = [file for file in usual if not file.version.is_prerelease] or usual
    newest = final[0].public  # the newest file comes first
    files = [file for file in usual if file.public == newest]
    labelled = sorted((file for file in every if file.label and file.public == newest), key=_rank)
    files.sort(key=_rank)
    choices = tuple(_choices(index, project, files))
    one = _one_for_all(index, project, choices)
    if one:
        choices = tuple(choice for choice in choices if choice.small)
    about = files[0].wheel.about
    wheels = (*files, *labelled)
    return Front(project, newest, about, _torches(files), one, choices, wheels)


def _rank(file: File) -> tuple[object, ...]:
    """The universal wheel first, torch2.9 before torch2.10."""
    abi, variant = (file.kind.abi, file.kind.variant) if file.kind else ("", "")
    parts = [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", variant)]
    return _RANKS.get(abi, 2), parts, file.wheel.file


def _one_for_all(
    index: Index, project: str, choices: Sequence[InstallCommand]
) -> InstallCommand | None:
    """The command that does for everybody, if all choices lead to the same files."""
    wide = [choice for choice in choices if not choice.small]
    if not wide or any((own.files, own.python) != (wide[0].files, wide[0].python) for own in wide):
        return None
    usual, names = _usual(wide), set(wide[0].files.values())
    # What a certain torch needs is offered to everybody in the groups of that torch alone.
    alone = any(file.wheel.file in names for file in index.whole.yanked)
    return dataclasses.replace(
        usual, requirement=project, group=usual.group if alone else index.whole.name
    )


def _usual(choices: Sequence[InstallCommand]) -> InstallCommand:
    """The newest torch in PyPI's build of it."""
    releases = torch_releases()

    def rank(choice: InstallCommand) -> tuple[object, ...]:
        facts = releases.get(choice.torch)
        from_pypi = facts is not None and choice.toolkit == f"CUDA {facts.pypi}"
        return from_pypi, version_numbers(choice.torch), choice.python == _USUAL_PYTHON

    return max(choices, key=rank)


def _torches(files: Sequence[File]) -> str:
    """The known releases of torch that some wheel is for."""
    ranges = {text for file in files if file.kind for text in file.kind.ranges}
    known = [minor for minor in torch_releases() if any(accepts(text, minor) for text in ranges)]
    if not known:
        return ""
    later = any(accepts(text, "99") for text in ranges)
    return f"{known[0]} or later" if later else " to ".join(dict.fromkeys((known[0], known[-1])))


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


def groups_by_toolkit(index: Index) -> list[tuple[str, bool, list[str]]]:
    """Of each toolkit: its name, whether it has a group, and its torches that have one."""
    names = {index.whole.name, *(group.name for group in index.groups)}
    toolkits = {build.toolkit.name: build for build in torch_builds()}
    torches: dict[str, list[str]] = {}
    for toolkit, _, torch in sorted(name.partition("/") for name in names):
        torches.setdefault(toolkit, []).extend([torch] if torch else [])
    return [
        (toolkit, toolkit in names, sorted(torches[toolkit], key=_torch_numbers, reverse=True))
        for toolkit in sorted(torches, key=lambda name: _order(toolkits.get(name)))
    ]


def _torch_numbers(name: str) -> tuple[int, ...]:
    return version_numbers(name.removeprefix("torch"))


def _gpu_name(arch: Arch) -> str:
    """What people call a GPU of an arch; empty if that is not known."""
    chip = f"{arch.major}.{arch.minor}" if isinstance(arch, CudaArch) else arch.name
    return gpu_names().get(chip, "")
