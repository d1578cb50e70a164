"""Every command of torchwheel on a page exists, with its options: a renamed one fails here."""

import re
import shlex
from collections.abc import Iterator

import pytest
from workflow_files import ROOT, sessions

from torchwheel import cli
from torchwheel.arguments import Choice, Command

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
START = r"(?:nox -s|torchwheel) "
SPAN = re.compile(rf"`({START}[^`]+)`")
LINE = re.compile(rf"^(?:    | *script: |\$ )?({START}[^`\n]+)", re.MULTILINE)
BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$|((?:^    .+\n)+)", re.MULTILINE | re.DOTALL)
COMMANDS = {entry.name: entry for one in cli.COMMANDS for entry in (one.commands or (one,))}


def commands(text: str) -> Iterator[str]:
    """The commands of a page: spans of code, and lines of blocks without their comments."""
    text = re.sub(r" *\\\n *", " ", text)
    yield from (" ".join(span.split()) for span in SPAN.findall(text))
    for fenced, indented in BLOCK.findall(text):
        yield from (re.split(r" +# ", line)[0] for line in LINE.findall(fenced or indented))


def options(command: Command) -> set[str]:
    every = [
        option
        for entry in command.options
        for option in (entry.options if isinstance(entry, Choice) else (entry,))
    ]
    return {name for option in every for name in option.names if name.startswith("--")}


def fault(line: str) -> str | None:
    """What is wrong with a command: no such session, no such command, no such option."""
    words = shlex.split(re.split(r" (?:[>|]|&&) ", line)[0].replace("\\|", ""), comments=True)
    words = [word.strip("[]") for word in words]
    if words[0] == "nox":
        session = sessions().get(words[2])
        if session is None:
            return f"no session {words[2]}"
        if session.command is None:
            return None
        words = [session.command, *words[words.index("--") + 1 :]] if "--" in words else []
    else:
        words = words[1:]
    if not words or words[0].startswith("-"):
        return None
    names = [" ".join(words[:2]), words[0]]
    known = [COMMANDS[name] for name in names if name in COMMANDS]
    if not known and not any(name.startswith(f"{words[0]} ") for name in COMMANDS):
        return f"no command {words[0]}"
    asked = {word.partition("=")[0] for word in words if word.startswith("--")}
    unknown = sorted(asked - options(known[0])) if known else []
    return f"no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page):
    found = list(commands(page.read_text(encoding="utf-8")))
    assert {line: says for line in found if (says := fault(line))} == {}


def test_commands_are_found_and_may_be_wrong():
    page = "Call `nox -s verify --\nX --sums Y`.\n\n"
    page += "    torchwheel cheque x  # no\n    nox -s new -- x\n"
    page += "```sh\ntorchwheel check x \\\n  --max 3 | tail\n```\n"
    lines = list(commands(page))
    assert [fault(line) for line in lines] == [
        *(None, "no command cheque", "no session new", "no option --max"),
    ]
    ci = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert len(set(commands(ci))) > 25
