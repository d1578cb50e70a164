"""What a setup.py names: arguments, extensions, archs, variables, questions for a GPU.

It is parsed and searched, never run, and no expression is evaluated. Where code decides, a TODO
with its line tells a person what to fill in.
"""

import ast
import dataclasses
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from torchwheel.matrix.sections import ArchsBy
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import NotRegularError, open_regular
from torchwheel_runtime.text import join_names, shorten

SETUP = "setup.py"
LARGEST = 1 << 20
_KINDS = frozenset(
    {"CUDAExtension", "CppExtension", "SyclExtension", "Extension", "CMakeExtension"}
)
ARCH_LIST = "TORCH_CUDA_ARCH_LIST"
# A flag such as `arch=compute_90,code=[sm_90,compute_90]`, `-arch=sm_80` or `--gpu-architecture=…`.
_CODE = re.compile(r"(?<!\w)(code|arch|gpu-architecture|gpu-code)=(?:\[([\w,]+)\]|(\w+))")
_NUMBER = re.compile(r"(sm|compute|lto)_([1-9][0-9]?)([0-9])([af]?)\Z")
_OPEN = re.compile(r"(sm|compute)_\Z")
# Questions whose answer depends on the machine's GPUs.
_ASKS_TORCH = frozenset(
    {
        *("is_available", "device_count", "current_device", "get_device_name"),
        *("get_device_capability", "get_device_properties"),
    }
)
QUESTION = re.compile(
    r"\b(nvidia-smi|rocminfo|rocm_agent_enumerator|amdgpu-arch"
    rf"|torch\.cuda\.(?:{'|'.join(sorted(_ASKS_TORCH))}))\b"
)


@dataclasses.dataclass(frozen=True)
class Mention:
    """Something that a build script names, and the place, e.g. "setup.py:12"."""

    name: str
    place: str

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"


@dataclasses.dataclass(frozen=True)
class BuildVariable(Mention):
    """An environment variable that a build script reads; `default` is None if none is a text."""

    default: str | None = None

    @property
    def forces(self) -> bool:
        """Whether it makes the build compile, where it would download or skip."""
        words = set(re.split("[_-]", self.name.upper()))
        return "FORCE" in words and bool(words & _COMPILES) and not words & _OTHERWISE

    @property
    def on(self) -> str:
        """The text that turns it on, which is like the text of its default."""
        return _ON.get(self.default or "", "1")

    @property
    def is_guess(self) -> bool:
        """Whether nothing says that `on` turns it on."""
        return self.default not in _ON


_COMPILES = frozenset({"BUILD", "CUDA", "COMPILE", "GPU"})
_OTHERWISE = frozenset({"ABI", "CPU", "CXX11", "NO", "ONLY", "SKIP"})
_ON = {
    **{"FALSE": "TRUE", "False": "True", "false": "true", "OFF": "ON", "no": "yes", "NO": "YES"},
    "0": "1",
}


@dataclasses.dataclass(frozen=True)
class DeclaredExtension:
    """A native extension; its name is None if it is no plain text.

    `limited_api` says whether its library keeps to Python's limited API.
    """

    kind: str
    place: str
    name: str | None
    limited_api: bool = False


@dataclasses.dataclass(frozen=True)
class BuildScript:
    """What the build scripts of a project name.

    Attributes:
        arguments: of setup(), those that are plain values.
        code: of setup(), the other ones, and their places.
        extensions: in the order of the file.
        archs: of compiler flags, each once.
        own_archs: whether a script sets the archs, so that the environment does not decide.
        variables: of the environment, each once.
        questions: whose answers depend on the machine's GPUs.
        modules: that setup.py imports and needs, beside the standard library.
        ninja: False if setup.py does without.
        todo: what a person must look up.
    """

    arguments: Mapping[str, object]
    code: Mapping[str, str]
    extensions: tuple[DeclaredExtension, ...] = ()
    archs: tuple[CudaArch, ...] = ()
    own_archs: bool = False
    variables: tuple[BuildVariable, ...] = ()
    questions: tuple[Mention, ...] = ()
    modules: tuple[str, ...] = ()
    ninja: bool = True
    todo: tuple[str, ...] = ()


def read_setup(folder: Path) -> BuildScript:
    """Read the setup.py of a project, which may have none.

    Raises:
        UsageError: it cannot be read, or is not Python.
    """
    return search_setup(read_own(folder / SETUP, "a build script"), str(folder / SETUP))


def read_own(file: Path, kind: str) -> bytes:
    """The content of a file of the project, which is to be of a kind; empty if there is none."""
    try:
        return read_limited(file) if file.exists() else b""
    except OSError as error:
        raise UsageError(explain(error)) from error
    except ValueError as error:
        raise UsageError(f"{file}: expected {kind}, found {error}") from error


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


def search_setup(content: bytes, where: str = SETUP) -> BuildScript:
    """What the text of a setup.py names; `where` is its path for an error."""
    try:
        with warnings.catch_warnings():
            # An odd escape in a foreign file is nothing for our user.
            warnings.simplefilter("ignore")
            return _Search(ast.parse(content)).result()
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{where}:{line}" if line else where
        reason = shorten(error.msg if isinstance(error, SyntaxError) else str(error))
        raise UsageError(
            f"{place}: expected Python {sys.version_info[0]}.{sys.version_info[1]}, found: {reason}"
        ) from error
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"{where}: expected a build script, found one nested too deep") from error


def archs_in(text: str) -> Iterator[CudaArch]:
    """The archs that a compiler flag names, PTX as `+PTX` of its arch."""
    machine: list[CudaArch] = []
    ptx: list[CudaArch] = []
    flags = [(one[1], (one[2] or one[3]).split(",")) for one in _CODE.finditer(text)]
    has_code = any(kind.endswith("code") for kind, _ in flags)
    for kind, names in flags:
        if has_code and not kind.endswith("code"):
            continue  # `arch=` beside `code=` says what is compiled, not what is kept.
        for name in names:
            found = _NUMBER.match(name)
            if found is None:
                continue
            suffix: Literal["", "a", "f"] = "a" if found[4] == "a" else "f" if found[4] else ""
            arch = CudaArch(int(found[2]), int(found[3]), suffix)
            (machine if found[1] == "sm" else ptx).append(arch)
            if not has_code:
                ptx.append(arch)  # nvcc keeps PTX of what `-arch` alone names.
    for arch in dict.fromkeys([*machine, *ptx]):
        yield arch.with_ptx(arch in ptx)


def hard_coded_archs(
    script: BuildScript, release: ToolkitRelease
) -> tuple[tuple[CudaArch, ...], ArchsBy]:
    """The archs that a script hard-codes and a release can compile, and who decides about them.

    Code for one arch alone (9.0a) is built as the script says; nvcc's other archs are replaced.
    """
    if not script.archs:
        return (), "replaced" if script.own_archs else "environment"
    able = {arch.in_binary for arch in release.archs if isinstance(arch, CudaArch)}
    kept: dict[CudaArch, bool] = {}
    for arch in script.archs:
        if arch.in_binary in able:
            kept[arch.in_binary] = kept.get(arch.in_binary, False) or arch.ptx
    archs = tuple(arch.with_ptx(ptx) for arch, ptx in sorted(kept.items()))
    return archs, "declared" if any(arch.suffix for arch in kept) else "replaced"


def each_once(variables: Iterable[BuildVariable]) -> tuple[BuildVariable, ...]:
    """Each variable at its first place, with the first default that a place spells out."""
    found: dict[str, BuildVariable] = {}
    for one in variables:
        first = found.setdefault(one.name, one)
        if first.default is None:
            found[one.name] = dataclasses.replace(first, default=one.default)
    return tuple(found.values())


def _place(node: ast.AST) -> str:
    return f"{SETUP}:{getattr(node, 'lineno', 1)}"


def _dotted(node: ast.AST) -> str:
    """The name of a variable or an attribute, e.g. "os.path.join"; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            before = _dotted(owner)
            return f"{before}.{name}" if before else name
        case _:
            return ""


def _text(node: ast.AST | None) -> str | None:
    """The text of a constant; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _is_off(node: ast.expr) -> bool:
    """Whether an argument is plainly False or None."""
    return isinstance(node, ast.Constant) and not node.value


def _called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return _dotted(call.func).rpartition(".")[2]


def _variable_in(node: ast.AST) -> tuple[ast.expr, str | None] | None:
    """The name of the environment variable that an expression reads, and the default."""
    match node:
        case ast.Call(func=function, args=[key, *rest]) if _dotted(function).endswith(_READERS):
            return key, _text(rest[0]) if rest else None
        case (
            ast.Subscript(value=owner, slice=key, ctx=ast.Load())
            | ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[owner])
        ) if _dotted(owner).endswith("environ"):
            return key, None
        case _:
            return None


_READERS = ("getenv", "environ.get", "environ.setdefault", "environ.pop")


class _Search:
    """One walk through a setup.py that collects what it names."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
        self.nodes = sorted(nodes, key=lambda node: getattr(node, "lineno", 0))
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.todo: list[tuple[int, str]] = []

    def result(self) -> BuildScript:
        arguments, code = self._arguments()
        variables, archs = tuple(self._variables()), dict.fromkeys(self._archs())
        questions, extensions = tuple(self._questions()), tuple(self._extensions())
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
                and _text(node.slice) == ARCH_LIST
                for node in self.nodes
            ),
            variables=each_once(variables),
            questions=questions,
            modules=tuple(sorted(set(self._modules()))),
            ninja=not any(one.arg == "use_ninja" and _is_off(one.value) for one in keywords),
            todo=tuple(dict.fromkeys(text for _, text in sorted(self.todo, key=lambda o: o[0]))),
        )

    def _ask(self, node: ast.AST, text: str) -> None:
        self.todo.append((getattr(node, "lineno", 1), f"{_place(node)}: {text}"))

    def _arguments(self) -> tuple[dict[str, object], dict[str, str]]:
        """The arguments of setup() that are plain values, and the places of the other ones."""
        calls = [one for one in self.calls if _called(one) == "setup"]
        values: dict[str, object] = {}
        code: dict[str, str] = {}
        if len(calls) > 1:
            self._ask(calls[1], "setup() is called more than once; the last call was read")
        for one in calls[-1].keywords if calls else ():
            if one.arg is None:
                self._ask(one.value, "arguments of setup() are in a variable; compare them")
                continue
            try:
                values[one.arg] = ast.literal_eval(one.value)
            except (ValueError, TypeError):
                code[one.arg] = _place(one.value)
        return values, code

    def _variables(self) -> Iterator[BuildVariable]:
        for node in self.nodes:
            if (found := _variable_in(node)) is None:
                continue
            if name := _text(found[0]):
                yield BuildVariable(name, _place(node), found[1])
            else:
                self._ask(node, "the name of an environment variable is made by code; look it up")

    def _questions(self) -> Iterator[Mention]:
        for node in self.nodes:
            match node:
                case ast.Attribute(attr=attr) if attr in _ASKS_TORCH:
                    if _dotted(node).endswith(f"cuda.{attr}"):
                        yield Mention(_dotted(node), _place(node))
                case ast.ImportFrom(module="torch.cuda", names=names):
                    for one in names:
                        if one.name in _ASKS_TORCH:
                            yield Mention(f"torch.cuda.{one.name}", _place(node))
                case ast.Constant(value=str(text)):
                    yield from (Mention(one, _place(node)) for one in QUESTION.findall(text))
                case _:
                    pass

    def _extensions(self) -> Iterator[DeclaredExtension]:
        called = {id(one.func) for one in self.calls}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                # `E = CppExtension if … else CUDAExtension`
                for one in ast.walk(node.value):
                    kind = _dotted(one).rpartition(".")[2]
                    if kind in _KINDS and id(one) not in called:
                        self._ask(node, f"a {kind} is made by code; see that it is compiled")
                        yield DeclaredExtension(kind, _place(node), None)
            elif isinstance(node, ast.Call) and _called(node) in _KINDS:
                named = {one.arg: one.value for one in node.keywords if one.arg}
                name = _text(named.get("name", node.args[0] if node.args else None))
                limited = "py_limited_api" in named and not _is_off(named["py_limited_api"])
                yield DeclaredExtension(_called(node), _place(node), name, limited)

    def _archs(self) -> Iterator[CudaArch]:
        docstrings = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        formats = [node for node in self.nodes if isinstance(node, ast.JoinedStr)]
        for one in formats:
            if any(_OPEN.search(_text(part) or "") for part in one.values):
                self._ask(one, "an arch of -gencode is made by code; list the archs in the matrix")
        parts = docstrings | {id(part) for one in formats for part in one.values}
        in_conditions = {
            line
            for node in self.nodes
            if isinstance(node, ast.If)
            for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        }
        lines: dict[int, ast.AST] = {}
        for node in self.nodes:
            if (text := _text(node)) is None or id(node) in parts:
                continue
            for arch in archs_in(text):
                if node.lineno in in_conditions:
                    lines.setdefault(node.lineno, node)
                yield arch
        if lines:
            first = next(iter(lines.values()))
            more = f", also {join_names(map(str, [*lines][1:]))}" if len(lines) > 1 else ""
            self._ask(first, f"archs are under a condition{more}; remove those that it leaves out")

    def _find_tag_by_code(self, arguments: Mapping[str, object]) -> None:
        """Ask a person where something but a plain `options` of setup() decides the wheel's tag."""
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
                    decides = "py_limited_api" in names and _called(node) not in _KINDS
                case _:
                    decides = False
            if decides:
                self._ask(node, "code decides the tag of a wheel; fill in abis.ordinary.python")

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


def imported_modules(node: ast.AST) -> set[str]:
    """The top modules that a statement imports, apart from relative imports."""
    match node:
        case ast.Import(names=names):
            return {one.name.partition(".")[0] for one in names}
        case ast.ImportFrom(module=str(module), level=0):
            return {module.partition(".")[0]}
        case _:
            return set()
