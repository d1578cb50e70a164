"""The tag that a project gives its wheels: how many Pythons one of them serves.

Only `py_limited_api` and a command's own `get_tag` decide. setuptools heeds `python_tag` and
`universal` for wheels without an extension alone.
"""

import ast
import configparser
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torchwheel.matrix.sections import WheelPython
from torchwheel.scaffold.constants import Constants, UnreadableError
from torchwheel.text import quote

_LIMITED = re.compile(r"cp3([1-9]?[0-9])")
_ANY = re.compile(r"py[23][0-9]*(\.py[23][0-9]*)*")
_COMMAND, _OPTION = "bdist_wheel", "py_limited_api"

Note = Callable[[ast.AST, str], None]
"""Takes what only a run of setup.py would tell, with its place."""


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


def tag_of_project(
    option: str | None,
    command: str | None,
    config: configparser.RawConfigParser,
    tables: Mapping[str, Any],
) -> tuple[WheelTag, list[str]]:
    """The tag of a project's wheels, and what could not be read.

    Args:
        option: of setup.py's `options`.
        command: of a command that setup.py defines.
        config: setup.cfg.
        tables: pyproject.toml.
    """
    # setuptools takes the last one.
    places = {
        f"{_OPTION} of setup.py": option,
        f"{_OPTION} of setup.cfg": _value(dict(config[_COMMAND]))
        if config.has_section(_COMMAND)
        else None,
        **_in_pyproject(tables),
        f"{_COMMAND} of setup.py": command,
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


def _in_pyproject(tables: Mapping[str, Any]) -> Mapping[str, object]:
    tool = _table(tables, "tool")
    found = {
        "wheel.py-api of scikit-build-core": _table(tool, "scikit-build", "wheel").get("py-api")
    }
    # setuptools reads its commands' options only if the file describes the project.
    if tables.get("project") or tool.get("setuptools"):
        options = _table(tool, "distutils", _COMMAND) or _table(tool, "distutils", "bdist-wheel")
        found[f"{_OPTION} of pyproject.toml"] = _value(options)
    return found


def _value(options: Mapping[str, Any]) -> object:
    return options.get(_OPTION) or options.get(_OPTION.replace("_", "-"))


def _table(content: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        found = content.get(name)
        content = found if isinstance(found, dict) else {}
    return content


def option_in_script(nodes: Iterable[ast.AST], constants: Constants, note: Note) -> str | None:
    """`py_limited_api` of `setup(options={"bdist_wheel": …})`, e.g. "cp39"; None without one."""
    for value in (value for node in nodes for value in _options(node)):
        # True and False are of extensions.
        if not (isinstance(value, ast.Constant) and isinstance(value.value, bool | None)):
            return _text(value, constants, note)
    return None


def _options(node: ast.AST) -> Iterator[ast.expr]:
    """The values of `py_limited_api` in {…}, in dict(…) and in `options[…] = …`."""
    match node:
        case ast.Dict(keys=keys, values=values):
            yield from (v for k, v in zip(keys, values, strict=True) if k and _is_option(k))
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            yield from (one.value for one in keywords if one.arg == _OPTION)
        case ast.Assign(targets=[ast.Subscript(slice=key)], value=value) if _is_option(key):
            yield value
        case _:
            pass


def _is_option(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == _OPTION


def _text(value: ast.expr, constants: Constants, note: Note) -> str | None:
    try:
        return constants.text(value)
    except UnreadableError:
        note(value, f"{_OPTION} of {_COMMAND} is not spelled out")
        return None


def command_in_script(nodes: Iterable[ast.AST], constants: Constants, note: Note) -> str | None:
    """The Python that a command of the script tags wheels with: "cp39", "py3"; else None."""
    for node in nodes:
        if isinstance(node, ast.ClassDef) and any(
            constants.full_name(base).endswith(_COMMAND) for base in node.bases
        ):
            return _of_command(node, constants, note)
    return None


def _of_command(command: ast.ClassDef, constants: Constants, note: Note) -> str | None:
    inner = list(ast.walk(command))
    for node in inner:
        if isinstance(node, ast.FunctionDef) and node.name == "get_tag":
            return _returned(node, constants, note)
    for node in inner:
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="py_limited_api")], value=value):
                return _text(value, constants, note)
    return None


def _returned(function: ast.FunctionDef, constants: Constants, note: Note) -> str | None:
    """The Python of a tag such as ("cp39", "abi3", platform) or ("py3", "none", platform)."""
    for node in ast.walk(function):
        if isinstance(node, ast.Tuple) and len(node.elts) > 1:
            try:
                python, abi = (constants.text(one) for one in node.elts[:2])
            except UnreadableError:
                continue
            if (abi, bool(_LIMITED.fullmatch(python))) == ("abi3", True) or (
                (abi, bool(_ANY.fullmatch(python))) == ("none", True)
            ):
                return python
    note(function, "the tag that get_tag gives wheels is not spelled out")
    return None
