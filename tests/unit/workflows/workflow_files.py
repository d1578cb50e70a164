"""Reads the workflows and actions, and the nox sessions that they call."""

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
REFERENCE = re.compile(r"\b(?:needs|steps|inputs|matrix|jobs|vars|secrets|github)(?:\.[\w-]+)+")
LOCAL = "$/"


@dataclasses.dataclass(frozen=True)
class Session:
    """A nox session.

    Attributes:
        name: its name.
        command: the torchwheel command that it runs, if any.
        by_name: whether it installs packages that no hash pins.
    """

    name: str
    command: str | None
    by_name: bool


@dataclasses.dataclass(frozen=True)
class Files:
    """Texts of the workflows and actions, by path below the root."""

    texts: Mapping[str, str]

    def changed(self, path: str, old: str, new: str) -> "Files":
        """A copy with one place changed."""
        assert self.texts[path].count(old) >= 1, f"{old!r} is not in {path}"
        return Files({**self.texts, path: self.texts[path].replace(old, new, 1)})

    def without(self, path: str) -> "Files":
        return Files({name: text for name, text in self.texts.items() if name != path})

    @property
    def documents(self) -> dict[str, Any]:
        return {name: _loaded(text) for name, text in self.texts.items()}

    @property
    def workflows(self) -> dict[str, Any]:
        return {n: d for n, d in self.documents.items() if n.startswith(".github/workflows/")}

    @property
    def actions(self) -> dict[str, Any]:
        return {n: d for n, d in self.documents.items() if n.startswith(".github/actions/")}


@functools.cache
def _loaded(text: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    document = yaml.safe_load(text)
    return {("on" if key is True else key): value for key, value in document.items()}


def committed() -> Files:
    folder = ROOT / ".github"
    paths = [*folder.glob("workflows/*.y*ml"), *folder.glob("actions/*/action.y*ml")]
    return Files({str(path.relative_to(ROOT)): path.read_text() for path in sorted(paths)})


@functools.cache
def sessions() -> dict[str, Session]:
    """The sessions of noxfile.py, which is parsed but not run."""
    by_name: dict[str, Session] = {}
    for node in ast.parse((ROOT / "noxfile.py").read_text()).body:
        decorators = getattr(node, "decorator_list", [])
        for decorator in decorators:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(call) == "nox.session":
                keywords = {k.arg: k.value for k in getattr(decorator, "keywords", [])}
                value = keywords.get("name")
                name = value.value if isinstance(value, ast.Constant) else node.name
                by_name[name] = Session(name, _command(node), _installs_by_name(node))
    return by_name


def _installs_by_name(node: ast.AST) -> bool:
    calls = (ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call))
    return any(call in ("install", "session.install") for call in calls)


def _command(node: ast.AST) -> str | None:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torchwheel":
            return str(ast.literal_eval(call.args[1]))
    return None


def jobs(document: Mapping[str, Any]) -> dict[str, Any]:
    return document.get("jobs", {})


def steps(document: Mapping[str, Any]) -> list[Any]:
    """Steps of a workflow's jobs, or of a composite action."""
    every = [job.get("steps", []) for job in jobs(document).values()]
    return [step for row in [*every, document.get("runs", {}).get("steps", [])] for step in row]


def texts(value: Any) -> Iterator[str]:
    """All texts below a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)


def references(value: Any) -> set[str]:
    """The references in the expressions below a value, e.g. `needs.matrix.outputs.matrix`."""
    # An `if` is an expression without its braces.
    found = {ref for text in texts(value) for e in EXPRESSION.findall(text) for ref in _refs(e)}
    if isinstance(value, Mapping) and "if" in value:
        found |= set(_refs(str(value["if"])))
    return found


def _refs(expression: str) -> list[str]:
    return REFERENCE.findall(expression)


def needs(job: Mapping[str, Any]) -> list[str]:
    names = job.get("needs", [])
    return [names] if isinstance(names, str) else list(names)


def local(uses: str) -> str:
    """The file of a local `uses`."""
    path = uses.removeprefix(LOCAL)
    return path if path.endswith((".yml", ".yaml")) else f"{path}/action.yml"
