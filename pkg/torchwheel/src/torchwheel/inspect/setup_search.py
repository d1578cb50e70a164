"""What a Python build script names: it is parsed and searched, never run.

No expression is evaluated. Where code decides, a TODO with its line tells a person what to fill in.
"""

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from torchwheel.inspect.build_script import (
    ARCH_LIST,
    SETUP,
    BuildScript,
    DeclaredExtension,
    Mention,
    archs_in,
    each_once,
    stable_target,
)
from torchwheel.inspect.setup_switches import SwitchSearch, called_name, dotted_name, text_of
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import join_names, shorten

_KINDS = frozenset(
    {"CUDAExtension", "CppExtension", "SyclExtension", "Extension", "CMakeExtension"}
)
# The arguments of setup() that decide something in a matrix.
_READ = frozenset({"extras_require", "install_requires", "options", "packages", "python_requires"})
_OPEN = re.compile(r"(sm|compute)_\Z")


def search_setup(content: bytes, where: str = SETUP, file: str = SETUP) -> BuildScript:
    """What the text of a build script names.

    Args:
        content: the text.
        where: its path for an error.
        file: its path in the project, for the places of what it names.

    Raises:
        UsageError: it is not Python.
    """
    try:
        with warnings.catch_warnings():
            # An odd escape in a foreign file is nothing for our user.
            warnings.simplefilter("ignore")
            return _Search(ast.parse(content), file).result()
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{where}:{line}" if line else where
        reason = shorten(error.msg if isinstance(error, SyntaxError) else str(error))
        raise UsageError(
            f"{place}: expected Python {sys.version_info[0]}.{sys.version_info[1]}, found: {reason}"
        ) from error
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"{where}: expected a build script, found one nested too deep") from error


def _is_off(node: ast.expr) -> bool:
    """Whether an argument is plainly False or None."""
    return isinstance(node, ast.Constant) and not node.value


def _is_empty(node: ast.expr) -> bool:
    """Whether an expression plainly says nothing: None, "", [] or {}."""
    match node:
        case ast.Dict(keys=[]) | ast.List(elts=[]) | ast.Tuple(elts=[]):
            return True
        case _:
            return _is_off(node)


def _conditional(node: ast.expr) -> ast.expr | None:
    """The one branch of `A if … else {}` that is not empty; None for anything else."""
    if not isinstance(node, ast.IfExp):
        return None
    branches = [one for one in (node.body, node.orelse) if not _is_empty(one)]
    return branches[0] if len(branches) == 1 else None


def _is_limited(call: ast.Call) -> bool:
    """Whether a call that makes an extension asks for Python's limited API."""
    return any(one.arg == "py_limited_api" and not _is_off(one.value) for one in call.keywords)


def _targets(node: ast.Assign) -> set[str]:
    """The names that an assignment binds."""
    return {one.id for one in node.targets if isinstance(one, ast.Name)}


class _Search(SwitchSearch):
    """One walk through a build script that collects what it names."""

    def result(self) -> BuildScript:
        arguments, code = self._arguments()
        variables, archs = tuple(self.variables()), dict.fromkeys(self._archs())
        questions, extensions = tuple(self.questions()), tuple(self._extensions())
        self._find_tag_by_code(arguments)
        keywords = [one for call in self.calls for one in call.keywords]
        return BuildScript(
            arguments=arguments,
            code=code,
            extensions=extensions,
            archs=tuple(archs),
            own_archs=any(
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Store)
                and text_of(node.slice) == ARCH_LIST
                for node in self.nodes
            ),
            variables=each_once(variables),
            questions=questions,
            modules=tuple(sorted(set(self._modules()))),
            loads=tuple(dict.fromkeys(self._loads())),
            cmake=any(text_of(one) == "cmake" for one in self.nodes),
            ninja=not any(one.arg == "use_ninja" and _is_off(one.value) for one in keywords),
            stable=next(self._stable(), None),
            todo=tuple(dict.fromkeys(text for _, text in sorted(self.todo, key=lambda o: o[0]))),
        )

    def _arguments(self) -> tuple[dict[str, object], dict[str, str]]:
        """The arguments of setup() that are plain values, and the places of the other ones."""
        calls = [one for one in self.calls if called_name(one) == "setup"]
        values: dict[str, object] = {}
        code: dict[str, str] = {}
        if len(calls) > 1:
            self.ask(calls[1], "setup() is called more than once; the last call was read")
        for one in calls[-1].keywords if calls else ():
            if one.arg is None:
                self.ask(one.value, "arguments of setup() are in a variable; compare them")
                continue
            given = self._bound_for(one.value)
            branch = _conditional(given)
            value = branch or given
            try:
                values[one.arg] = self.resolve_text(value) or ast.literal_eval(value)
            except (ValueError, TypeError):
                code[one.arg] = self.place(one.value)
                continue
            if branch and one.arg in _READ:
                self.ask(branch, f"{one.arg} of setup() is under a condition, and was taken")
        return values, code

    def _bound_for(self, argument: ast.expr) -> ast.expr:
        """What a variable holds that is bound at the top of the file and used here alone.

        Anything else is returned as it is: code may have changed it.
        """
        if not isinstance(argument, ast.Name):
            return argument
        names = [one for one in self.nodes if isinstance(one, ast.Name) and one.id == argument.id]
        bound = [
            one.value
            for one in self.nodes
            if isinstance(one, ast.Assign) and one.col_offset == 0 and argument.id in _targets(one)
        ]
        return bound[0] if len(bound) == 1 and len(names) == 2 else argument

    def _stable(self) -> Iterator[Mention]:
        """The torch of each definition of TORCH_TARGET_VERSION, as a flag or as a pair."""
        for node in self.nodes:
            parts = node.elts if isinstance(node, ast.Tuple) else [node]
            texts = [str(one.value) for one in parts if isinstance(one, ast.Constant)]
            if minor := stable_target("=".join(texts)):
                yield Mention(minor, self.place(node))

    def _extensions(self) -> Iterator[DeclaredExtension]:
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                limited = any(
                    _is_limited(one) for one in self.calls if called_name(one) in _targets(node)
                )
                for kind in self._kinds_in(node):
                    self.ask(node, f"a {kind} is made by code; see that it is compiled")
                    yield DeclaredExtension(kind, self.place(node), None, limited)
            elif isinstance(node, ast.Call) and called_name(node) in _KINDS:
                named = {one.arg: one.value for one in node.keywords if one.arg}
                name = self.resolve_text(named.get("name", node.args[0] if node.args else None))
                yield DeclaredExtension(
                    called_name(node), self.place(node), name, _is_limited(node)
                )

    def _kinds_in(self, node: ast.Assign) -> list[str]:
        """The kinds that a variable stands for: `E = CppExtension if … else CUDAExtension`."""
        called = {id(one.func) for one in self.calls}
        names = [
            dotted_name(one).rpartition(".")[2]
            for one in ast.walk(node.value)
            if id(one) not in called
        ]
        return [name for name in names if name in _KINDS]

    def _archs(self) -> Iterator[CudaArch]:
        docstrings = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        formats = [node for node in self.nodes if isinstance(node, ast.JoinedStr)]
        for one in formats:
            if any(_OPEN.search(text_of(part) or "") for part in one.values):
                self.ask(one, "an arch of -gencode is made by code; list the archs in the matrix")
        parts = docstrings | {id(part) for one in formats for part in one.values}
        in_conditions = {
            line
            for node in self.nodes
            if isinstance(node, ast.If)
            for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        }
        lines: dict[int, ast.AST] = {}
        for node in self.nodes:
            if (text := text_of(node)) is None or id(node) in parts:
                continue
            for arch in archs_in(text):
                if node.lineno in in_conditions:
                    lines.setdefault(node.lineno, node)
                yield arch
        if lines:
            first = next(iter(lines.values()))
            more = f", also {join_names(map(str, [*lines][1:]))}" if len(lines) > 1 else ""
            self.ask(first, f"archs are under a condition{more}; remove those that it leaves out")

    def _find_tag_by_code(self, arguments: Mapping[str, object]) -> None:
        """Ask a person where something but a plain `options` of setup() decides the wheel's tag."""
        extensions = _KINDS.union(
            *(_targets(n) for n in self.nodes if isinstance(n, ast.Assign) and self._kinds_in(n))
        )
        for node in self.nodes:
            match node:
                case (
                    ast.FunctionDef(name="get_tag")
                    | ast.Attribute(attr="py_limited_api", ctx=ast.Store())
                ):
                    decides = True
                case ast.Constant(value="py_limited_api"):
                    decides = "options" not in arguments
                case ast.Call(keywords=keywords):
                    names = {one.arg for one in keywords}
                    decides = "py_limited_api" in names and called_name(node) not in extensions
                case _:
                    decides = False
            if decides:
                self.ask(node, "code decides the tag of a wheel; fill in abis.ordinary.python")

    def _modules(self) -> Iterator[str]:
        """The top modules that are imported, but for those that the file goes on without."""
        optional = {
            id(one)
            for node in self.nodes
            if isinstance(node, ast.Try) and node.handlers
            for one in ast.walk(node)
        }
        for node in self.nodes:
            if id(node) not in optional:
                yield from imported_modules(node) - sys.stdlib_module_names

    def _loads(self) -> Iterator[str]:
        """The files of a project that this one imports or runs, where they exist."""
        folders = ["", str(PurePosixPath(self.file).parent)]
        for call in self.calls:
            texts = [text for one in ast.walk(call) if (text := self.resolve_text(one))]
            if dotted_name(call.func).startswith("sys.path."):
                folders += texts
            elif called_name(call) in _RUNS:
                files = [text for text in texts if text.endswith(".py")]
                yield from files
                if not files:
                    self.ask(call, f"{called_name(call)}() runs code that was not read; look it up")
            elif called_name(call) in ("import_module", "__import__"):
                yield from (file for text in texts for file in _files(text, folders))
        for node in self.nodes:
            for name in _imports_of(node):
                yield from _files(name, folders)


_RUNS = ("exec", "execfile", "run_path", "spec_from_file_location")


def _files(module: str, folders: Iterable[str]) -> Iterator[str]:
    """The files that importing a module runs, if they are in one of the folders."""
    path = PurePosixPath(*module.split("."))
    for folder in folders:
        for part in reversed([path, *path.parents][:-1]):
            place = PurePosixPath(folder, part)
            yield from (f"{place}.py", f"{place}/__init__.py")


def _imports_of(node: ast.AST) -> Iterator[str]:
    """The modules that a statement may import, with their packages."""
    match node:
        case ast.Import(names=names):
            yield from (one.name for one in names)
        case ast.ImportFrom(module=module, names=names):
            yield from (f"{module}.{one.name}" if module else one.name for one in names)
        case _:
            pass


def imported_modules(node: ast.AST) -> set[str]:
    """The top modules that a statement imports, apart from relative imports."""
    match node:
        case ast.Import(names=names):
            return {one.name.partition(".")[0] for one in names}
        case ast.ImportFrom(module=str(module), level=0):
            return {module.partition(".")[0]}
        case _:
            return set()
