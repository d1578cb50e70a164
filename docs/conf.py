"""The documentation's site: `nox -s docs` builds it into dist/docs, with warnings as errors.

Sphinx, because it is maintained and finds every broken link itself; furo, because it can be read on
a phone and in the dark. The API reference is read from the sources (autoapi), without torch.

Some pages are made of code or of files outside docs: their own file is a stub. The pages of docs/
link to files of the repository, too. On the site such a link leads to the repository, whose address
CI knows; elsewhere its text stays. So does that of a link to the index, unless the site is built
into an index (`nox -s index -- build`).
"""

import argparse
import ast
import json
import os
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
for package in ("torchwheel", "torchwheel_runtime"):
    sys.path.insert(0, str(ROOT / "pkg" / package / "src"))

from torchwheel.cli import AUDIENCES  # noqa: E402 - of the source tree
from torchwheel_runtime.arguments import Command  # noqa: E402

project = "torchwheel and fusedops"
html_title = project
extensions = ["myst_parser", "autoapi.extension", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
highlight_language = "none"
default_role = "code"
smartquotes = False  # options begin with two hyphens
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autoapi_dirs = [
    str(ROOT / "pkg" / "fusedops"),
    str(ROOT / "pkg" / "torchwheel_runtime" / "src" / "torchwheel_runtime"),
]
napoleon_use_ivar = True
autosummary_generate = False
autoapi_generate_api_docs = False
autoapi_add_toctree_entry = False
autoapi_python_class_content = "class"
copybutton_prompt_text = "$ "
suppress_warnings = ["autoapi.python_import_resolution"]

COPIED = {
    "index": "README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "tests": "tests/README.md",
}
"""Pages that are files of the repository outside docs."""
INDEX = "../index.html"
"""Where the front page of the index is, as the pages of docs/ write it."""
_LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)"
)


def setup(app: Any) -> None:  # noqa: ANN401 - Sphinx's own type
    """Registers the rewriting of pages."""
    app.connect("source-read", _read_page)
    app.connect("build-finished", _make_accessible)


def _read_page(app: Any, name: str, source: list[str]) -> None:  # noqa: ANN401
    """Fills a stub, and leads each link to its page of the site or to the repository."""
    path = COPIED.get(name, f"docs/{name}.md")
    if name in COPIED:
        # The front page's own file has the table of contents.
        contents = source[0] if name == "index" else ""
        source[0] = (ROOT / path).read_text(encoding="utf-8") + contents
    elif name in MADE:
        source[0] = "\n".join(MADE[name]())
    pages = {COPIED.get(page, f"docs/{page}.md"): page for page in app.env.found_docs}
    repository = os.environ.get("REPOSITORY", "").rstrip("/")

    def lead(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups("")
        if target == INDEX:
            inside = (Path(app.outdir) / INDEX).is_file()
            return f'<a href="{INDEX}">{text}</a>' if inside else text
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if place in pages:
            return f"[{text}](/{pages[place]}.md{anchor})"
        if place.startswith("docs/") and (ROOT / place).is_file():
            return f"{image}[{text}](/{place.removeprefix('docs/')})"
        if not (ROOT / place).exists():
            raise ValueError(f"{path}: expected a file of the repository, found {link[0]}")
        return f"[{text}]({repository}/blob/main/{place})" if repository else text

    source[0] = _LINK.sub(lead, source[0])


_ACCESSIBLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<th class="head"><p></p></th>': "<td></td>",
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer': '<aside aria-label="This page" class="toc-drawer',
    '<div id="search-results">': '<h1>Search</h1>\n<div id="search-results">',
    # What scrolls can be scrolled by the keyboard.
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}
"""What the theme writes, and what axe finds no fault in."""


def _make_accessible(app: Any, error: Exception | None) -> None:  # noqa: ANN401
    if error is None and app.builder.name == "html":
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            for found, written in _ACCESSIBLE.items():
                text = text.replace(found, written)
            path.write_text(text, encoding="utf-8")


def _commands() -> Iterator[str]:
    yield "# Command line\n"
    yield "Exit status: 0 done, 1 something failed, 2 the call or the matrix is wrong.\n"
    for audience, commands in AUDIENCES.items():
        yield f"## To {audience}\n"
        for command in commands:
            for one in command.commands or (command,):
                yield from _command(one)


def _command(command: Command) -> Iterator[str]:
    parser = argparse.ArgumentParser(prog=f"torchwheel {command.name}", add_help=False)
    command.add_to(parser)
    needs = f" Needs `torchwheel[{command.extra}]`." if command.extra else ""
    more = f" [More]({posixpath.relpath(command.page, 'reference')})."
    yield f"### {command.name}\n\n{command.help}{needs}{more}\n\n```text\n{_usage(parser)}\n```\n"
    if rows := [_option(action) for action in parser._actions]:
        yield "| argument | means |\n|---|---|"
        yield from rows
        yield ""
    examples = "\n".join(f"torchwheel {example}" for example in command.examples)
    yield f"```bash\n{examples}\n```\n"


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage of a command, on lines of 80 columns wherever the site is built."""
    formatter = argparse.HelpFormatter(prog=parser.prog, width=80)
    formatter.add_usage(None, parser._actions, parser._mutually_exclusive_groups)
    return formatter.format_help().removeprefix("usage: ").rstrip()


def _option(action: argparse.Action) -> str:
    value = str(action.metavar or action.dest.upper())
    if action.choices:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    name = ", ".join(action.option_strings) or value
    if action.option_strings and action.nargs != 0:
        name += f" {value}"
    text = (action.help or "") % {**vars(action), "prog": ""}
    return f"| `{name.replace('|', chr(92) + '|')}` | {_cell(text)} |"


def _matrix() -> Iterator[str]:
    schema = json.loads((ROOT / "docs" / "matrix.schema.json").read_text(encoding="utf-8"))
    yield "# matrix.yaml\n"
    yield f"{schema['description']} [The schema](../matrix.schema.json) is for editors.\n"
    yield from _section(schema)
    for name, section in schema["$defs"].items():
        yield f"## {name}\n\n{section.get('description', '')}\n"
        yield from _section(section)


def _section(section: dict[str, Any]) -> Iterator[str]:
    if not section.get("properties"):
        return
    yield "| key | value | means |\n|---|---|---|"
    for key, field in section["properties"].items():
        must = " (required)" if key in section.get("required", ()) else ""
        text = field.get("description", "")
        if isinstance(field.get("default"), bool | int | str) and field["default"] != "":
            text += f" Default: {json.dumps(field['default'])}."
        yield f"| `{key}`{must} | {_type(field)} | {_cell(text)} |"
    yield ""


def _type(field: dict[str, Any]) -> str:
    """The type of a field, in words."""
    inner = field.get("additionalProperties") or None
    if patterns := field.get("patternProperties"):
        inner = next(iter(patterns.values()))
    match field:
        case {"$ref": str(place)}:
            name = place.rpartition("/")[2]
            words = f"[{name}](#{name.lower()})"
        case {"anyOf": list(choices)}:
            named = [_type(one) for one in choices if one.get("type") != "null"]
            words = " or ".join(dict.fromkeys(named))
        case {"enum": list(values)}:
            words = ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            words = f"`{value}`"
        case {"type": "array", "items": dict(item)}:
            words = f"list of {_type(item)}"
        case {"type": "object"} if isinstance(inner, dict):
            words = f"names of {_type(inner)}"
        case _:
            words = str(field.get("type", "any"))
    return words


def _cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def _operators() -> Iterator[str]:
    yield "# fusedops\n"
    yield "Every operator takes float16, bfloat16 and float32. The entry points by type, such as"
    yield "`bias_gelu_fp16`, take the arguments of the operator whose name they begin with."
    yield "[Operators](../ops/README.md) has the formulas, their sources and the figures.\n"
    yield _documented("function", "fusedops.status")
    yield _documented("function", "fusedops.models.convert.convert")
    yield _documented("class", "fusedops.models.decoder.Decoder", "forward, generate, workspace")
    yield _documented("class", "fusedops.workspace.Workspace")
    families = ROOT / "pkg" / "fusedops" / "families"
    for path in sorted((*families.glob("[a-z]*.py"), *families.glob("*/__init__.py"))):
        family = path.parent.name if path.stem == "__init__" else path.stem
        yield f"## {family}\n"
        for name in _public(path):
            yield _documented("function", f"fusedops.families.{family}.{name}")


def _public(path: Path) -> list[str]:
    """The names that a module of operators offers: its `__all__`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                return [str(name) for name in ast.literal_eval(value)]
    return []


def _documented(kind: str, name: str, members: str = "") -> str:
    """The docstring and the signature of one function or class."""
    shown = f"   :members: {members}\n" if members else ""
    return f"```{{eval-rst}}\n.. autoapi{kind}:: {name}\n{shown}```\n"


MADE = {
    "reference/commands": _commands,
    "reference/fusedops": _operators,
    "reference/matrix": _matrix,
}
"""Pages that are made of code."""
