"""The metadata that a project declares: of pyproject.toml, setup.cfg, PKG-INFO and setup().

Of setup() plain values are taken; what code makes is a TODO.

The tag of its wheels is among it. Only `py_limited_api` decides that; setuptools heeds `python_tag`
and `universal` for wheels without an extension alone.
"""

import configparser
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.inspect.build_script import SETUP, BuildScript
from torchwheel.inspect.project_scripts import PYPROJECT, read_own
from torchwheel.matrix.sections import WheelPython
from torchwheel.text_files import exists, read_toml
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import escape, quote
from torchwheel_runtime.versions import has_long_number, is_specifier

CONFIG, PKG_INFO = "setup.cfg", "PKG-INFO"
_SETUPTOOLS = "setuptools.build_meta"
_LIMITED = re.compile(r"cp3([1-9]?[0-9])")
_ANY = re.compile(r"py[23][0-9]*(\.py[23][0-9]*)*")
_COMMAND, _OPTION = "bdist_wheel", "py_limited_api"


@dataclasses.dataclass(frozen=True)
class WheelTag:
    """The Pythons that one wheel serves.

    Attributes:
        python: as `abis.ordinary.python` of the matrix has it.
        oldest: the oldest of an abi3 wheel, e.g. "3.9"; empty for other wheels.
        place: what of the project says so, e.g. "py_limited_api of setup.cfg"; empty for nothing.
    """

    python: WheelPython = "each"
    oldest: str = ""
    place: str = ""

    def __str__(self) -> str:
        says = {
            "each": "one for each Python",
            "abi3": f"abi3: one for every Python from {self.oldest}",
            "any": "one for any Python",
        }
        return says[self.python] + (f", by {self.place}" if self.place else "")


@dataclasses.dataclass(frozen=True)
class DeclaredMetadata:
    """What a project declares.

    Attributes:
        name: the distribution's.
        backend: the build backend.
        build_requires: what the build needs.
        requires: what the package needs.
        extras: further requirements.
        python: the range of Python.
        packages: its packages, if they are listed.
        where: the folder of its packages, "." or e.g. "src".
        tag: the Pythons that one of its wheels serves.
        todo: what a person must fill in, as code decides it.
    """

    name: str
    backend: str
    build_requires: tuple[str, ...]
    requires: tuple[str, ...]
    extras: tuple[str, ...]
    python: SpecifierSet
    packages: tuple[str, ...]
    where: str
    tag: WheelTag
    todo: tuple[str, ...]

    @property
    def torch(self) -> SpecifierSet:
        """The range of torch that it wants."""
        ranges = [one.specifier for one in requirements(self.requires) if one.name == "torch"]
        return ranges[0] if ranges else SpecifierSet()


# What a person does where code decides an argument of setup().
_FILL_IN = {
    "install_requires": "under `torch:` of matrix.yaml, leave the minors that it wants",
    "python_requires": "under `torch:` of matrix.yaml, leave the Pythons that it wants",
}


def read_declared_metadata(folder: Path, script: BuildScript, name: str = "") -> DeclaredMetadata:
    """The metadata of a project.

    Args:
        folder: the project's.
        script: its setup.py.
        name: the distribution's; what its files say if empty.

    Raises:
        UsageError: a file cannot be read, or none says the name.
    """
    tables = read_toml(folder / PYPROJECT) if exists(folder / PYPROJECT) else None
    if tables is None and not (folder / SETUP).is_file():
        raise UsageError(f"{folder}: expected a setup.py or a pyproject.toml, found neither")
    config, built = _config(folder / CONFIG), _pkg_info(folder / PKG_INFO)
    project, setup = table(tables or {}, "project"), script.arguments
    build = table(tables or {}, "build-system")
    options = dict(config["options"]) if config.has_section("options") else {}
    requires = _texts(
        [
            setup.get("install_requires"),
            project.get("dependencies"),
            options.get("install_requires", "").splitlines(),
            built.get_all("Requires-Dist", []),
        ]
    )
    extras = [table(project, "optional-dependencies"), table(setup, "extras_require")]
    python = (
        project.get("requires-python")
        or setup.get("python_requires")
        or options.get("python_requires")
        or built.get("Requires-Python")
    )
    own = name or project.get("name") or setup.get("name")
    packages = table(tables or {}, "tool", "setuptools").get("packages")
    tag, odd = _tag(script, config, tables or {})
    declared = {"install_requires": requires, "python_requires": python}
    by_code = {key: place for key, place in script.code.items() if not declared.get(key)}
    return DeclaredMetadata(
        name=_name(folder, own or config.get("metadata", "name", fallback=built.get("Name"))),
        backend=str(build.get("build-backend", _SETUPTOOLS)),
        build_requires=_texts(build.get("requires")),
        requires=requires,
        extras=_texts([list(one.values()) for one in extras]),
        python=_range(python),
        packages=_texts(setup.get("packages")) or _texts(packages),
        where=str(table(setup, "package_dir").get("", ".")),
        tag=tag,
        todo=(
            *(
                f"{place}: {key} of setup() is made by code; {_FILL_IN[key]}"
                for key, place in by_code.items()
                if key in _FILL_IN
            ),
            *odd,
        ),
    )


def requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    """Those of the texts that are requirements."""
    for text in texts:
        try:
            if not has_long_number(text):
                yield Requirement(text)
        except InvalidRequirement:
            continue


def table(content: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """A table of a TOML file, empty where there is none."""
    for name in path:
        found = content.get(name)
        content = found if isinstance(found, dict) else {}
    return content


def _config(file: Path) -> configparser.RawConfigParser:
    """setup.cfg; an empty one where there is none."""
    parser = configparser.RawConfigParser(strict=False)
    content = read_own(file, "an INI file")
    try:
        parser.read_string(content.decode())
    except (ValueError, configparser.Error) as error:
        reason = escape(str(error).splitlines()[0])
        raise UsageError(f"{file}: expected an INI file, found {reason}") from error
    return parser


def _pkg_info(file: Path) -> Message:
    """The metadata of an sdist; nothing where there is none."""
    content = read_own(file, "metadata") if file.is_file() else b""
    return HeaderParser().parsestr(content.decode("utf-8", "replace"))


def _name(folder: Path, own: object) -> str:
    if not isinstance(own, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", own):
        raise UsageError(
            f"{folder}: expected the project's name in pyproject.toml or setup(), found none that "
            "is spelled out; pass --name"
        )
    return canonicalize_name(own)


def _tag(
    script: BuildScript, config: configparser.RawConfigParser, tables: Mapping[str, Any]
) -> tuple[WheelTag, list[str]]:
    """The tag of a project's wheels, and what it must not be."""
    tool = table(tables, "tool")
    # setuptools takes the last one. It reads options of pyproject.toml if that has a project.
    places = {
        f"{_OPTION} of setup.py": _option(table(script.arguments, "options", _COMMAND)),
        f"{_OPTION} of setup.cfg": _option(
            dict(config[_COMMAND]) if config.has_section(_COMMAND) else {}
        ),
        "wheel.py-api of scikit-build-core": table(tool, "scikit-build", "wheel").get("py-api"),
        f"{_OPTION} of pyproject.toml": _option(
            table(tool, "distutils", _COMMAND) or table(tool, "distutils", "bdist-wheel")
        )
        if tables.get("project") or tool.get("setuptools")
        else None,
    }
    for place, word in reversed(places.items()):
        if not word:
            continue
        if isinstance(word, str) and (found := _LIMITED.fullmatch(word)):
            return WheelTag("abi3", f"3.{found[1]}", place), []
        if isinstance(word, str) and _ANY.fullmatch(word):
            return WheelTag("any", "", place), []
        return WheelTag(), [f"{place}: expected a Python such as cp39, found {quote(str(word))}"]
    return WheelTag(), []


def _option(options: Mapping[str, Any]) -> object:
    return options.get(_OPTION) or options.get(_OPTION.replace("_", "-"))


def _range(text: object) -> SpecifierSet:
    return SpecifierSet(text) if isinstance(text, str) and is_specifier(text) else SpecifierSet()


def _texts(value: object) -> tuple[str, ...]:
    """The texts of a list, and of the lists in it."""
    if isinstance(value, str):
        return (value,)
    inner = value if isinstance(value, list | tuple) else ()
    return tuple(text for one in inner for text in _texts(one))
