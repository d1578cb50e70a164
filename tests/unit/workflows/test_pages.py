"""What the pages say: commands that exist, words of the glossary, places of the code, one fork."""

import argparse
import functools
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from workflow_files import ROOT, committed, jobs, sessions, steps

from checkout import SOURCES
from torchwheel import cli
from torchwheel.matrix.load import load
from torchwheel.matrix.render import MatrixPlan, matrix_text
from torchwheel.matrix.variants import select
from torchwheel_runtime.arguments import Command

GLOSSARY, CI, DESIGN = (f"docs/{name}.md" for name in ("glossary", "ci", "design"))
PAGES = [
    *("README.md", "CONTRIBUTING.md", "matrix.yaml"),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
]


@functools.cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


# Commands.

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
    parser = argparse.ArgumentParser(add_help=False)
    for declare in command.options:
        declare(parser)
    return {name for name in parser._option_string_actions if name.startswith("--")}


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


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".md")])
def test_the_commands_of_a_page_exist(page):
    assert {line: says for line in commands(text_of(page)) if (says := fault(line))} == {}


def test_commands_are_found_and_may_be_wrong():
    page = "Call `nox -s verify --\nX --sums Y`.\n\n"
    page += "    torchwheel cheque x  # no\n    nox -s new -- x\n"
    page += "```sh\ntorchwheel check x \\\n  --max 3 | tail\n```\n"
    assert [fault(line) for line in commands(page)] == [
        *(None, "no command cheque", "no session new", "no option --max"),
    ]
    assert len(set(commands(text_of(CI)))) > 25


# Words: the glossary has terms, their meanings, and the words that each replaces.

ROWS = [
    row
    for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|([^|]*)\|$", text_of(GLOSSARY), re.M)
    if row[0] != "term"
]
TERMS = [term for term, _, _ in ROWS]
REPLACED = [word.strip() for _, _, words in ROWS for word in words.split(",") if word.strip()]
OTHERS = [page for page in PAGES if page != GLOSSARY]


def used(word: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(word)}(s|es|ed|d)?\b", text, re.I) is not None


def test_every_term_is_used_on_a_page():
    every = "\n".join(map(text_of, OTHERS))
    assert [term for term in TERMS if not used(term, every)] == []
    assert len(TERMS) > 25
    assert "companion" in REPLACED


@pytest.mark.parametrize("page", OTHERS)
def test_a_page_uses_no_replaced_word(page):
    found = [word for word in REPLACED if used(word, text_of(page))]
    assert not found, f"{page} uses {', '.join(found)}: docs/glossary.md has the word to use"


# Places: the three journeys of the page on the design.

JOURNEYS = re.search(r"^## Three journeys\n(.*?)^## ", text_of(DESIGN), re.M | re.S)[1]
PLACES = re.findall(r"`((?:torchwheel|torchwheel_runtime|fusedops|csrc)/[\w/.]+):(\w+)`", JOURNEYS)


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_place_of_a_journey_exists(path, name):
    definition = rf"(def|class|struct|template|Status|void|{name})\b.*\b{name}\b|\b{name}\("
    (file,) = (
        ROOT / folder / path for folder in ("", *SOURCES) if (ROOT / folder / path).is_file()
    )
    assert re.search(definition, file.read_text()), f"{path} defines no {name}"


def test_each_journey_has_ten_lines():
    journeys = re.split(r"^\*\*", JOURNEYS, flags=re.M)[1:]
    assert [len(re.findall(r"^\d+\. ", journey, re.M)) for journey in journeys] == [10, 10, 10]
    assert len(PLACES) > 25


# From fork to first release, as far as no forge is needed; the rest is rehearsed.


def steps_below(heading: str) -> list[str]:
    """The numbered steps below a heading of docs/ci.md."""
    section = text_of(CI).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]


def entries(matrix: Path) -> list[dict[str, object]]:
    """The release's jobs, as the workflow asks for them."""
    loaded = load(matrix)
    return json.loads(matrix_text(MatrixPlan(loaded, select(loaded, ["release"])), "github"))[
        "include"
    ]


def test_a_gpu_that_nobody_has_is_one_line_less(tmp_path):
    assert "Remove the line of a GPU that you do not have" in steps_below("Set up a fork")[0]
    before = entries(ROOT / "matrix.yaml")
    assert any("rocm" in entry["smoke_runner"] for entry in before)
    kept, removed = [], []
    for line in text_of("matrix.yaml").splitlines(keepends=True):
        is_of_gpu = re.match(r" +(cuda|rocm): +\[self-hosted", line)
        (removed if is_of_gpu else kept).append(line)
    assert len(removed) == 2
    (tmp_path / "matrix.yaml").write_text("".join(kept), encoding="utf-8")
    for name in ("pyproject.toml", "pkg/torchwheel_runtime/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    after = entries(tmp_path / "matrix.yaml")
    # No job waits for a runner that is not there, and no variant is lost.
    hosted = {"ubuntu-24.04", "ubuntu-24.04-arm"}
    assert {label for entry in after for label in entry["smoke_runner"]} <= hosted
    assert [entry["variant"] for entry in after] == [entry["variant"] for entry in before]


def test_the_pages_and_environments_of_the_steps_are_those_of_the_workflows():
    _, pages, pypi, who, branch = steps_below("Set up a fork")
    workflows = {Path(path).name: one for path, one in committed().workflows.items()}
    every = [job for workflow in workflows.values() for job in jobs(workflow).values()]
    environments = {
        one["name"] if isinstance(one, dict) else one
        for job in every
        if (one := job.get("environment"))
    }
    # The publisher and the reviewers are of these environments, and of no other.
    assert environments == set(re.findall(r"`([a-z-]+)`", who)) - {"v*"}
    assert "environment `pypi`" in " ".join(pypi.split())
    assert jobs(workflows["release.yml"])["pypi"]["environment"]
    assert "GitHub Actions" in pages
    uses = [step.get("uses", "") for workflow in workflows.values() for step in steps(workflow)]
    assert any("deploy-pages" in action for action in uses)
    # Another name of the branch changes ci.yml alone.
    (named,) = re.findall(r"change `(\w+\.yml)`", branch)
    assert [name for name, one in workflows.items() if "'branches'" in str(one["on"])] == [named]


def test_the_version_of_the_tag_is_in_one_place():
    assert "Set the version in `pyproject.toml`" in steps_below("Release")[0]
    (version,) = re.findall(r'^version = "(.+)"', text_of("pyproject.toml"), re.MULTILINE)
    others = [
        *(ROOT / "pkg" / "fusedops").rglob("*.py"),
        *(ROOT / "bench").rglob("*.py"),
        *(path for ending in ("py", "yaml", "yml") for path in ROOT.glob(f"*.{ending}")),
        *(ROOT / ".github").rglob("*.yml"),
    ]
    assert len(others) > 50
    assert [path for path in others if f'"{version}"' in path.read_text(encoding="utf-8")] == []
