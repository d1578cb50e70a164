"""The values of expressions that a Python file spells out, found without running it."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

_MUTATORS = frozenset({"append", "extend", "insert", "remove", "pop", "update", "clear"})
# The folder of the file itself, in the ways that scripts write it.
_HERE = frozenset({"os.path.dirname", "os.path.abspath", "os.path.realpath", "resolve", "absolute"})
_MOST_FILES = 10_000


class UnreadableError(Exception):
    """An expression whose value only a run of the file would tell."""


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


class Constants:
    """The constant variables of a file, and the values of expressions made of them.

    A variable counts if it is assigned once, anywhere in the file, and never changed in place.
    """

    def __init__(self, tree: ast.Module, folder: Path) -> None:
        self.folder = folder
        self.imports = _imported_names(tree)
        self._assigned = _assigned_once(tree)

    def full_name(self, node: ast.AST) -> str:
        """The dotted name as its module has it: `osp.join` is "os.path.join"."""
        first, dot, rest = dotted_name(node).partition(".")
        return self.imports.get(first, first) + dot + rest

    def value(self, node: ast.expr) -> object:
        """What the expression means: text, a number, or a list of such.

        Raises:
            UnreadableError: only a run of the file tells.
        """
        try:
            return self._value(node)
        except RecursionError:
            raise UnreadableError from None

    def text(self, node: ast.expr) -> str:
        """The value of an expression that is a text."""
        found = self.value(node)
        if not isinstance(found, str):
            raise UnreadableError
        return found

    def texts(self, node: ast.expr) -> list[str]:
        """The value of an expression that is a list of texts."""
        found = self.value(node)
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return [str(one) for one in found]
        raise UnreadableError

    def _value(self, node: ast.expr) -> object:  # noqa: PLR0911 - a table of forms
        match node:
            case ast.Constant(value=str() | int() | float() | None):
                return node.value
            case ast.Name(id="__file__"):
                return "setup.py"
            case ast.Name(id=name) if name in self._assigned:
                # A variable that is made of itself has no value.
                expression = self._assigned.pop(name)
                try:
                    return self._value(expression)
                finally:
                    self._assigned[name] = expression
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [one for item in items for one in self._items(item)]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _added(self._value(left), self._value(right))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return _joined([self._value(left), self._value(right)])
            case ast.JoinedStr(values=parts):
                return "".join(str(self._value(part)) for part in parts)
            case ast.FormattedValue(value=inner, format_spec=None, conversion=-1):
                return self._value(inner)
            case ast.Attribute(attr="parent"):
                return _parent(self._value(node.value))
            case ast.Call():
                return self._call(node)
            case _:
                raise UnreadableError

    def _items(self, node: ast.expr) -> Sequence[object]:
        if not isinstance(node, ast.Starred):
            return [self._value(node)]
        inner = self._value(node.value)
        if not isinstance(inner, list):
            raise UnreadableError
        return inner

    def _call(self, node: ast.Call) -> object:
        name = self.full_name(node.func)
        arguments = [self._value(one) for one in node.args]
        if name == "os.path.join":
            return _joined(arguments)
        if name in ("str", "pathlib.Path", "os.fspath", "list", "sorted") and len(arguments) == 1:
            return arguments[0]
        if name == "os.path.dirname" and len(arguments) == 1:
            return _parent(arguments[0])
        if name in _HERE and len(arguments) == 1:
            return arguments[0]
        if name == "glob.glob" and len(arguments) == 1 and isinstance(arguments[0], str):
            return self._files(arguments[0])
        if isinstance(node.func, ast.Attribute) and not arguments and node.func.attr in _HERE:
            return self._value(node.func.value)
        raise UnreadableError

    def _files(self, pattern: str) -> list[str]:
        """The files of the project that a pattern names."""
        path = PurePosixPath(pattern)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise UnreadableError
        found: list[str] = []
        for number, one in enumerate(self.folder.glob(pattern)):
            if number >= _MOST_FILES:
                raise UnreadableError
            found.append(one.relative_to(self.folder).as_posix())
        return sorted(found)


def _added(left: object, right: object) -> object:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    raise UnreadableError


def _joined(parts: Sequence[object]) -> str:
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) != len(parts) or not texts:
        raise UnreadableError
    return PurePosixPath(*texts).as_posix()


def _parent(path: object) -> str:
    if not isinstance(path, str):
        raise UnreadableError
    return PurePosixPath(path).parent.as_posix()


def _imported_names(tree: ast.Module) -> Mapping[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.asname:
                    names[one.asname] = one.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                names[one.asname or one.name] = f"{node.module}.{one.name}"
    return names


def _assigned_once(tree: ast.Module) -> dict[str, ast.expr]:
    values: dict[str, list[ast.expr | None]] = {}

    def note(target: ast.AST, value: ast.expr | None) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                values.setdefault(node.id, []).append(value if node is target else None)

    changed: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    note(target, value)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                note(target, value)
            case ast.AugAssign(target=target) | ast.NamedExpr(target=target):
                changed.add(dotted_name(target))
            case ast.For(target=target) | ast.comprehension(target=target):
                changed.update(dotted_name(one) for one in ast.walk(target))
            case ast.withitem(optional_vars=ast.Name(id=name)):
                changed.add(name)
            case ast.arg(arg=name):
                changed.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)):
                if attr in _MUTATORS:
                    changed.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                changed.add(name)
            case _:
                pass
    return {
        name: found[0]
        for name, found in values.items()
        if len(found) == 1 and found[0] is not None and name not in changed
    }
