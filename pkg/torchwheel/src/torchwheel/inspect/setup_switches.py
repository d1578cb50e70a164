"""What of a Python build script may switch kernels on or off: variables, arguments, questions."""

import ast
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence

from torchwheel.inspect.build_script import (
    ASKS_TORCH,
    QUESTION,
    TOOLKIT_HOMES,
    BuildVariable,
    Question,
)

_COMMANDS = frozenset(
    {
        *("bdist_egg", "bdist_wheel", "build", "build_ext", "build_py", "clean", "develop"),
        *("dist_info", "editable_wheel", "egg_info", "install", "sdist", "test"),
    }
)
_READERS = ("get", "setdefault", "pop")
_WHOLE = ("items", "keys", "values")
_COPIES = ("dict", "copy", "deepcopy")


def dotted_name(node: ast.AST) -> str:
    """The name of a variable or an attribute, e.g. "os.path.join"; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            before = dotted_name(owner)
            return f"{before}.{name}" if before else name
        case _:
            return ""


def text_of(node: ast.AST | None) -> str | None:
    """The text of a constant; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def called_name(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return dotted_name(call.func).rpartition(".")[2]


class SwitchSearch:
    """A walk through a build script that finds what may switch kernels on or off."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
        self.file = file
        self.nodes = sorted(nodes, key=lambda node: getattr(node, "lineno", 0))
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.todo: list[tuple[int, str]] = []
        self.constants = self._constants()
        self.environs = {
            node.targets[0].id
            for node in self.nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and any(dotted_name(one).endswith("environ") for one in _copies_of(node.value))
        }

    def _constants(self) -> Mapping[str, str]:
        """The names that are bound once, to a text."""
        stored = [
            one.id
            for one in self.nodes
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        ]
        found = {
            node.targets[0].id: text_of(node.value)
            for node in self.nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        return {k: text for k, text in found.items() if text is not None and stored.count(k) == 1}

    def place(self, node: ast.AST) -> str:
        """E.g. "setup.py:12"."""
        return f"{self.file}:{getattr(node, 'lineno', 1)}"

    def resolve_text(self, node: ast.AST | None) -> str | None:
        """The text of a constant, or of a name that is bound to one; None for anything else."""
        return self.constants.get(node.id) if isinstance(node, ast.Name) else text_of(node)

    def ask(self, node: ast.AST, text: str) -> None:
        """Add what a person must look up."""
        self.todo.append((getattr(node, "lineno", 1), f"{self.place(node)}: {text}"))

    def _is_environ(self, node: ast.AST) -> bool:
        name = dotted_name(node)
        return name.endswith("environ") or name in self.environs

    def _variable_in(self, node: ast.AST) -> tuple[ast.expr, str | None] | None:
        """The name of the environment variable that an expression reads, and the default."""
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[key, *rest]) if (
                name in _READERS and self._is_environ(owner)
            ):
                return key, self._default(rest, node)
            case ast.Call(func=function, args=[key, *rest]) if dotted_name(function).endswith(
                "getenv"
            ):
                return key, self._default(rest, node)
            case (
                ast.Subscript(value=owner, slice=key, ctx=ast.Load())
                | ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[owner])
            ) if self._is_environ(owner):
                return key, None
            case _:
                return None

    def _default(self, rest: Sequence[ast.expr], call: ast.AST) -> str | None:
        """The default that a call spells out; 0 and False are "0"."""
        named = [one.value for one in getattr(call, "keywords", ()) if one.arg == "default"]
        for node in [*rest, *named][:1]:
            if isinstance(node, ast.Constant) and isinstance(node.value, int):
                return str(int(node.value))
            return self.resolve_text(node)
        return None

    def variables(self) -> Iterator[BuildVariable]:
        """The variables of the environment, and the arguments, that the script reads."""
        helpers, inside = self._helpers()
        for node in self.nodes:
            found = self._variable_in(node)
            if found is None and isinstance(node, ast.Call) and called_name(node) in helpers:
                at = helpers[called_name(node)]
                if len(node.args) > at:
                    found = node.args[at], self._default(node.args[at + 1 :], node)
            if found is None:
                self._ask_about_whole(node)
                yield from self._argument(node)
            elif name := self.resolve_text(found[0]):
                yield BuildVariable(name, self.place(node), found[1])
            elif id(node) not in inside:
                self.ask(node, "the name of an environment variable is made by code; look it up")

    def _argument(self, node: ast.AST) -> Iterator[BuildVariable]:
        """A word of the command line that the script looks for: `"--cuda_ext" in sys.argv`.

        Or that it has argparse look for: `parser.add_argument("--cuda_ext")`.
        """
        match node:
            case ast.Compare(left=word, ops=[ast.In()], comparators=[owner]) if dotted_name(
                owner
            ).endswith("argv"):
                name = self.resolve_text(word)
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=[*words]):
                names = (self.resolve_text(word) or "" for word in words)
                name = next((one for one in names if one.startswith("--")), None)
            case _:
                return
        if name and name not in _COMMANDS:
            yield BuildVariable(name, self.place(node), given="argument")

    def _helpers(self) -> tuple[Mapping[str, int], Collection[int]]:
        """Functions that read the variable that an argument names, by its place, and the reads."""
        helpers: dict[str, int] = {}
        inside: set[int] = set()
        for function in self.nodes:
            if not isinstance(function, ast.FunctionDef):
                continue
            names = [one.arg for one in function.args.args]
            for node in ast.walk(function):
                found = self._variable_in(node)
                if found and isinstance(found[0], ast.Name) and found[0].id in names:
                    helpers[function.name] = names.index(found[0].id)
                    inside.add(id(node))
        return helpers, inside

    def _ask_about_whole(self, node: ast.AST) -> None:
        """Ask a person about an expression that hands on all variables of the environment."""
        match node:
            case ast.Attribute(value=owner, attr=name) if name in _WHOLE:
                handed = self._is_environ(owner)
            case ast.Call(args=arguments) if called_name(node) not in _COPIES:
                handed = any(map(self._is_environ, arguments))
            case _:
                handed = False
        if handed:
            self.ask(node, "reads the environment as a whole; look up the variables that it takes")

    def questions(self) -> Iterator[Question]:
        """The questions that it asks about the machine."""
        for node in self.nodes:
            for name in self._asked_by(node):
                yield Question(name, self.place(node))

    def _asked_by(self, node: ast.AST) -> Iterator[str]:
        """The questions that a part of the script asks about the machine."""
        match node:
            case ast.Attribute(attr=attr) if attr in ASKS_TORCH:
                owner = dotted_name(node).rpartition(".")[0]
                if owner.rpartition(".")[2] == "cuda" or owner in self._names_of_cuda:
                    yield f"torch.cuda.{attr}"
                elif owner == "torch.accelerator":
                    yield f"torch.accelerator.{attr}"
            case ast.Call(func=ast.Name("getattr"), args=[owner, ast.Constant(str(attr)), *_]) if (
                attr in ASKS_TORCH and dotted_name(owner) == "torch.cuda"
            ):
                yield f"torch.cuda.{attr}"
            case ast.Attribute(attr="_cuda_getDeviceCount" as attr):
                yield f"torch._C.{attr}"
            case ast.ImportFrom(module="torch.cuda", names=names):
                yield from (f"torch.cuda.{one.name}" for one in names if one.name in ASKS_TORCH)
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name == "pynvml")
            case ast.Constant(value=str(text)):
                yield from QUESTION.findall(text)
            case ast.Compare(left=left, comparators=[ast.Constant(value=None)]):
                yield from _home(left)
            case ast.BoolOp(values=values):
                yield from (one for value in values for one in _home(value))
            case ast.UnaryOp(op=ast.Not(), operand=value) | ast.If(test=value):
                yield from _home(value)
            case _:
                pass

    @functools.cached_property
    def _names_of_cuda(self) -> Collection[str]:
        """Other names of torch.cuda: `import torch.cuda as c`, `from torch import cuda as c`."""
        named = {(None, "torch.cuda"), ("torch", "cuda")}
        return {
            one.asname
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for one in node.names
            if one.asname and (getattr(node, "module", None), one.name) in named
        }


def _copies_of(node: ast.expr) -> Iterator[ast.expr]:
    """An expression, and what it is a copy of: `os.environ.copy()`, `dict(os.environ)`."""
    yield node
    if isinstance(node, ast.Call) and called_name(node) in _COPIES:
        yield from node.args
        if isinstance(node.func, ast.Attribute):
            yield node.func.value


def _home(node: ast.expr) -> Iterator[str]:
    """The variable of a toolkit's folder, if an expression is one."""
    name = dotted_name(node).rpartition(".")[2]
    if name in TOOLKIT_HOMES:
        yield name
