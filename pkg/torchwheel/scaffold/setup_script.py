"""Reads a setup.py that is never run: extensions, archs, variables, requirements.

What only a run would tell is listed as unread, with its line.
"""

import ast
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.errors import UsageError
from torchwheel.os_errors import explain
from torchwheel.ownership import NotRegularError, open_regular
from torchwheel.scaffold.constants import Constants, UnreadableError, dotted_name
from torchwheel.scaffold.setup_facts import (
    NAME,
    BuildVariable,
    DeclaredExtension,
    HardCodedArch,
    SetupFacts,
    Unread,
    archs_in,
    is_open,
)
from torchwheel.scaffold.wheel_tag import command_in_script, option_in_script
from torchwheel.text import shorten
from torchwheel.versions import version_numbers

LARGEST = 1 << 20
_KINDS = frozenset(
    {"CUDAExtension", "CppExtension", "SyclExtension", "Extension", "CMakeExtension"}
)
_RELEASE = re.compile(r"[1-9][0-9]?(\.[0-9]+)?\Z")


def read_setup(folder: Path) -> SetupFacts:
    """Read the setup.py of a project, which may have none.

    Raises:
        UsageError: it cannot be read, or is not Python.
    """
    file = folder / NAME
    try:
        if not file.exists():
            return SetupFacts()
        content = read_limited(file)
    except OSError as error:
        raise UsageError(explain(error)) from error
    except ValueError as error:
        raise UsageError(f"{file}: expected a build script, found {error}") from error
    return facts_of(content, folder, str(file))


def read_limited(file: Path) -> bytes:
    """The content of a file of a foreign project.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, or no regular file.
    """
    try:
        handle = open_regular(file)
    except NotRegularError:
        raise ValueError("something that is no file") from None
    with os.fdopen(handle, "rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return content


def facts_of(content: bytes, folder: Path, where: str = NAME) -> SetupFacts:
    """The facts of a setup.py's text; `folder` has the files that its patterns name."""
    try:
        with warnings.catch_warnings():
            # An odd escape in a foreign file is nothing for our user.
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
        return _Reader(tree, folder).facts()
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{where}:{line}" if line else where
        reason = shorten(error.msg if isinstance(error, SyntaxError) else str(error))
        raise UsageError(
            f"{place}: expected Python {sys.version_info[0]}.{sys.version_info[1]}, found: {reason}"
        ) from error
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"{where}: expected a build script, found one nested too deep") from error


class _Reader:
    def __init__(self, tree: ast.Module, folder: Path) -> None:
        self.tree = tree
        self.constants = Constants(tree, folder)
        self.unread: list[Unread] = []
        self.parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self.nodes = sorted(self.parents, key=lambda node: getattr(node, "lineno", 0))
        self.aliases = dict(self._aliases())

    def facts(self) -> SetupFacts:
        keywords = self._setup_keywords()
        archs = tuple(dict.fromkeys(self._archs()))
        extensions = tuple(self._extensions())
        variables = {one.name: one for one in reversed(list(self._variables()))}
        extras = self._optional("extras_require", keywords)
        return SetupFacts(
            name=self._text("name", keywords),
            extensions=extensions,
            archs=archs,
            own_archs=self._sets_arch_list(),
            variables=tuple(sorted(variables.values(), key=lambda one: one.line)),
            limited_api=option_in_script(self.nodes, self.constants, self._note),
            command_tag=command_in_script(self.nodes, self.constants, self._note),
            modules=tuple(sorted(set(self._modules()))),
            requires=tuple(self._requirements("install_requires", keywords)),
            extras=tuple(self._extras(extras)) if extras else (),
            python=self._text("python_requires", keywords),
            packages=self._packages(keywords),
            where=self._where(keywords),
            ninja=not self._without_ninja(),
            unread=tuple(dict.fromkeys(sorted(self.unread, key=lambda one: one.line))),
        )

    def _note(self, node: ast.AST, text: str) -> None:
        self.unread.append(Unread(getattr(node, "lineno", 1), text))

    def _calls(self) -> Iterator[tuple[str, ast.Call]]:
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield self.constants.full_name(node.func), node

    # setup(…)

    def _setup_keywords(self) -> Mapping[str, ast.expr]:
        calls = [call for name, call in self._calls() if name.rpartition(".")[2] == "setup"]
        if not calls:
            return {}
        if len(calls) > 1:
            self._note(calls[1], "setup() is called more than once; the last call was read")
        for one in calls[-1].keywords:
            if one.arg is None:
                self._note(one.value, "arguments of setup() are in a variable")
        return {one.arg: one.value for one in calls[-1].keywords if one.arg}

    def _text(self, key: str, keywords: Mapping[str, ast.expr]) -> str | None:
        if (node := keywords.get(key)) is None:
            return None
        try:
            return self.constants.text(node)
        except UnreadableError:
            self._note(node, f"{key} of setup() is not spelled out")
            return None

    def _requirements(self, key: str, keywords: Mapping[str, ast.expr]) -> Sequence[str]:
        if (node := keywords.get(key)) is None:
            return ()
        try:
            return self.constants.texts(node)
        except UnreadableError:
            self._note(node, f"{key} of setup() is not spelled out")
            return ()

    def _optional(self, key: str, keywords: Mapping[str, ast.expr]) -> ast.Dict | None:
        node = keywords.get(key)
        return node if isinstance(node, ast.Dict) else None

    def _extras(self, extras: ast.Dict) -> Iterator[str]:
        for node in extras.values:
            try:
                yield from self.constants.texts(node)
            except UnreadableError:
                continue

    def _packages(self, keywords: Mapping[str, ast.expr]) -> tuple[str, ...] | None:
        node = keywords.get("packages")
        if node is None or isinstance(node, ast.Call):
            return None
        try:
            return tuple(self.constants.texts(node))
        except UnreadableError:
            self._note(node, "packages of setup() are not spelled out")
            return None

    def _where(self, keywords: Mapping[str, ast.expr]) -> str:
        """The folder in which packages are looked for."""
        node = keywords.get("packages")
        places = list(node.args[:1]) if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Call):
            places += [one.value for one in node.keywords if one.arg == "where"]
        folders = self._optional("package_dir", keywords)
        if folders:
            pairs = zip(folders.keys, folders.values, strict=True)
            places += [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == ""]
        for place in places:
            try:
                return self.constants.text(place)
            except UnreadableError:
                self._note(place, "the folder of the packages is not spelled out")
        return "."

    # Extensions

    def _aliases(self) -> Iterator[tuple[str, str]]:
        """Variables that stand for a class of extensions: `E = CppExtension if … else …`."""
        for node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                kinds = {
                    dotted_name(one).rpartition(".")[2]
                    for one in ast.walk(node.value)
                    if isinstance(one, ast.Name | ast.Attribute)
                } & _KINDS
                if kinds and not any(isinstance(one, ast.Call) for one in ast.walk(node.value)):
                    cuda = "CUDAExtension" in kinds
                    yield node.targets[0].id, "CUDAExtension" if cuda else kinds.pop()

    def _extensions(self) -> Iterator[DeclaredExtension]:
        for name, call in self._calls():
            own = dotted_name(call.func)
            kind = self.aliases.get(own) or name.rpartition(".")[2]
            if kind not in _KINDS:
                continue
            named = {one.arg: one.value for one in call.keywords if one.arg}
            first, second = [*call.args, None, None][:2]
            title, sources = named.get("name", first), named.get("sources", second)
            try:
                text = self.constants.text(title) if title else None
            except UnreadableError:
                text = None
            try:
                files = tuple(self.constants.texts(sources)) if sources else None
            except UnreadableError:
                files = None
            if text is None:
                self._note(call, f"the name of a {kind} is not spelled out")
            if files is None and kind != "CMakeExtension":
                self._note(call, f"the sources of a {kind} are not spelled out")
            limited = named.get("py_limited_api")
            off = limited is None or (isinstance(limited, ast.Constant) and not limited.value)
            yield DeclaredExtension(kind, call.lineno, text, files, not off)

    def _without_ninja(self) -> bool:
        return any(
            one.arg == "use_ninja" and isinstance(one.value, ast.Constant) and not one.value.value
            for _, call in self._calls()
            for one in call.keywords
        )

    # Archs

    def _archs(self) -> Iterator[HardCodedArch]:
        for node in self.nodes:
            if isinstance(node, ast.JoinedStr):
                texts = [one.value for one in node.values if isinstance(one, ast.Constant)]
                if any(isinstance(text, str) and is_open(text) for text in texts):
                    self._note(node, "an arch of -gencode is not spelled out")
                continue
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if isinstance(self.parents.get(node), ast.Expr | ast.JoinedStr):
                continue
            archs = tuple(archs_in(node.value))
            if archs:
                since, before = self._releases(node)
                yield from (HardCodedArch(arch, since, before) for arch in archs)

    def _releases(self, node: ast.AST) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The CUDA releases for which the conditions around a place hold."""
        since: tuple[int, ...] = ()
        before: tuple[int, ...] = ()
        child, parent = node, self.parents.get(node)
        while parent is not None:
            if isinstance(parent, ast.If) and child is not parent.test:
                first, last = self._bounds(parent.test)
                if child in parent.orelse:
                    first, last = ((), first) if first and not last else ((), ())
                since = max(since, first)
                before = min(before or last, last or before)
            child, parent = parent, self.parents.get(parent)
        return since, before

    def _bounds(self, test: ast.expr) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The first release, and the first one too late, that a condition names."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            bounds = [self._bounds(one) for one in test.values]
            lasts = [last for _, last in bounds if last]
            return max(first for first, _ in bounds), min(lasts, default=())
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            release = _release_of(test.comparators[0])
            if release and isinstance(test.ops[0], ast.GtE | ast.Gt):
                return release, ()
            if release and isinstance(test.ops[0], ast.Lt):
                return (), release
        if isinstance(test, ast.Compare | ast.Call) and not self._is_plain(test):
            self._note(test, "archs are under a condition that was not read")
        return (), ()

    def _is_plain(self, test: ast.expr) -> bool:
        """Whether a condition asks for a tool or a switch, and not for an arch."""
        inner = [*ast.walk(test)]
        asks = any(self.constants.full_name(one) in _READERS for one in inner)
        return asks or (
            isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)
        )

    def _sets_arch_list(self) -> bool:
        for node in self.nodes:
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                key = node.slice
                if isinstance(key, ast.Constant) and key.value == "TORCH_CUDA_ARCH_LIST":
                    return self.constants.full_name(node.value) == "os.environ"
        return False

    # Variables

    def _variables(self) -> Iterator[BuildVariable]:
        for node in self.nodes:
            if isinstance(node, ast.Call) and node.args:
                if self.constants.full_name(node.func) not in _READERS:
                    continue
                key: ast.expr = node.args[0]
                default = node.args[1] if len(node.args) > 1 else None
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                if self.constants.full_name(node.value) != "os.environ":
                    continue
                key, default = node.slice, None
            else:
                continue
            try:
                name = self.constants.text(key)
            except UnreadableError:
                self._note(node, "the name of an environment variable is not spelled out")
                continue
            yield BuildVariable(name, node.lineno, self._on_value(node, default))

    def _on_value(self, node: ast.AST, default: ast.expr | None) -> str:
        """The text that turns a variable on: what it is compared with, else like its default."""
        parent = self.parents.get(node)
        while isinstance(parent, ast.Attribute | ast.Call) and len(ast.dump(parent)) < 2000:
            parent = self.parents.get(parent)
        if isinstance(parent, ast.Compare):
            for one in ast.walk(parent.comparators[0]):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    return one.value
        if isinstance(default, ast.Constant) and isinstance(default.value, str):
            for off, on in _ON.items():
                if default.value == off:
                    return on
        return "1"

    def _modules(self) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and not self._is_optional(node):
                    yield top

    def _is_optional(self, node: ast.AST) -> bool:
        """Whether the file goes on without the module."""
        parent = self.parents.get(node)
        while parent is not None:
            if isinstance(parent, ast.Try) and parent.handlers:
                return True
            parent = self.parents.get(parent)
        return False


_READERS = frozenset({"os.getenv", "os.environ.get"})
_ON = {"FALSE": "TRUE", "False": "True", "false": "true", "OFF": "ON", "no": "yes", "NO": "YES"}


def _release_of(node: ast.expr) -> tuple[int, ...] | None:
    """The release that a condition compares with: Version("12.8"), "12.8", 12.8 or (12, 8)."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Tuple):
        numbers = [one.value for one in node.elts if isinstance(one, ast.Constant)]
        whole = tuple(number for number in numbers if isinstance(number, int))
        return whole if len(whole) == len(node.elts) and len(whole) > 1 else None
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str | float):
        return None
    text = str(node.value)
    return version_numbers(text) if _RELEASE.match(text) else None
