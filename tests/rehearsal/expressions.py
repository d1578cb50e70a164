"""Expressions of the forge's workflows, `${{ … }}`: a tokenizer, a parser, and what they mean.

Only what the workflows here use is known; anything else is an error, never a guess.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)"
    r"|(?P<name>[A-Za-z_][\w-]*)|(?P<sign>&&|\|\||==|!=|[!.,()\[\]]))"
)
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}

Context = Mapping[str, Any]


class ExpressionError(Exception):
    """An expression is malformed, or names what is not known."""


def is_true(value: object) -> bool:
    """Whether the forge takes a value as true: all but false, 0, the empty text and null."""
    return not (value is None or value is False or value in ("", 0))


def to_text(value: object) -> str:
    """A value as it is written into a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list):
        return json.dumps(value, indent=2)
    return str(value)


def fill(value: Any, context: Context) -> Any:
    """A value with its expressions replaced; one that is all of a text keeps its type."""
    if isinstance(value, Mapping):
        return {key: fill(part, context) for key, part in value.items()}
    if isinstance(value, list):
        return [fill(part, context) for part in value]
    if not isinstance(value, str):
        return value
    whole = _EXPRESSION.fullmatch(value.strip())
    if whole and "${{" not in whole[1]:
        return evaluate(whole[1], context)
    return _EXPRESSION.sub(lambda match: to_text(evaluate(match[1], context)), value)


def condition(text: object, context: Context) -> bool:
    """The value of an `if`, whose braces may be missing."""
    if not isinstance(text, str):
        return is_true(text)
    whole = _EXPRESSION.fullmatch(text.strip())
    return is_true(evaluate(whole[1] if whole else text, context))


def evaluate(text: str, context: Context) -> Any:
    """The value of one expression."""
    parser = _Parser(_tokens(text), context)
    value = parser.either()
    if parser.rest:
        raise ExpressionError(f"{text.strip()!r}: not understood from {parser.rest[0]!r} on")
    return value


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"{text.strip()!r}: not understood from {text[at:]!r} on")
        tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
        at = match.end()
    return tokens


class _Parser:
    """Evaluates while it parses. `&&` and `||` give one of their sides, as in JavaScript."""

    def __init__(self, tokens: list[tuple[str, str]], context: Context) -> None:
        self.rest = tokens
        self.context = context

    def either(self) -> Any:
        value = self.both()
        while self._take("||"):
            other = self.both()
            value = value if is_true(value) else other
        return value

    def both(self) -> Any:
        value = self.compared()
        while self._take("&&"):
            other = self.compared()
            value = other if is_true(value) else value
        return value

    def compared(self) -> Any:
        value = self.negated()
        while self.rest and self.rest[0][1] in ("==", "!="):
            sign = self.rest.pop(0)[1]
            value = _equal(value, self.negated()) == (sign == "==")
        return value

    def negated(self) -> Any:
        return not is_true(self.negated()) if self._take("!") else self.reached()

    def reached(self) -> Any:
        """A value, and what is reached from it by `.name` and `[index]`."""
        value = self.value()
        while self.rest and self.rest[0] in (("sign", "."), ("sign", "[")):
            if self._take("."):
                key: Any = self._next("name")
            else:
                self._take("[")
                key = self.either()
                self._require("]")
            value = _member(value, key)
        return value

    def value(self) -> Any:
        if self._take("("):
            value = self.either()
            self._require(")")
            return value
        if not self.rest:
            raise ExpressionError("a value is missing at the end")
        kind, word = self.rest.pop(0)
        if kind == "text":
            return word[1:-1].replace("''", "'")
        if kind == "number":
            return float(word) if "." in word else int(word)
        if kind != "name":
            raise ExpressionError(f"a value is missing before {word!r}")
        if self._take("("):
            return self._call(word)
        if word in _WORDS:
            return _WORDS[word]
        if word not in self.context:
            raise ExpressionError(f"no context {word!r} here")
        return self.context[word]

    def _call(self, name: str) -> Any:
        arguments: list[Any] = []
        while not self._take(")"):
            arguments.append(self.either())
            if not self._take(","):
                self._require(")")
                break
        status = self.context.get("status", {})
        if name in status and not arguments:
            return status[name]
        if name == "hashFiles" and "workspace" in self.context.get("github", {}):
            return _hash(Path(self.context["github"]["workspace"]), arguments)
        if name not in FUNCTIONS:
            raise ExpressionError(f"no function {name!r} here")
        return FUNCTIONS[name](*arguments)

    def _take(self, sign: str) -> bool:
        found = bool(self.rest) and self.rest[0] == ("sign", sign)
        if found:
            self.rest.pop(0)
        return found

    def _require(self, sign: str) -> None:
        if not self._take(sign):
            raise ExpressionError(f"{sign!r} is missing")

    def _next(self, kind: str) -> str:
        if not self.rest or self.rest[0][0] != kind:
            raise ExpressionError(f"a {kind} is missing")
        return self.rest.pop(0)[1]


def _member(value: object, key: object) -> Any:
    """A key that is missing gives null, as on the forge."""
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return None


def _equal(one: object, other: object) -> bool:
    """Texts are compared without case."""
    if isinstance(one, str) and isinstance(other, str):
        return one.lower() == other.lower()
    return one == other


def _hash(workspace: Path, patterns: list[Any]) -> str:
    """The hash of the files that match; the empty text without any."""
    files = {path for pattern in patterns for path in workspace.glob(pattern) if path.is_file()}
    content = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sorted(files))
    return hashlib.sha256(content).hexdigest() if files else ""


def _contains(where: Any, what: object) -> bool:
    if isinstance(where, list):
        return any(_equal(entry, what) for entry in where)
    return to_text(what).lower() in to_text(where).lower()


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "fromJSON": json.loads,
    "toJSON": lambda value: json.dumps(value, indent=2),
    "startsWith": lambda text, part: to_text(text).lower().startswith(to_text(part).lower()),
    "endsWith": lambda text, part: to_text(text).lower().endswith(to_text(part).lower()),
    "contains": _contains,
    "join": lambda parts, sign=",": to_text(sign).join(map(to_text, parts)),
    "format": lambda text, *values: text.format(*map(to_text, values)),
}
