"""A release by hand: commands of docs/ci.md as they stand there, against a forge on loopback."""

import contextlib
import io
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from release_artifacts import Artifacts

import signing
from rehearsal.forge import Token
from rehearsal.toy import forge_with_gh
from torchwheel.cli import main

PAGE = Path(__file__).parents[3].joinpath("docs", "ci.md").read_text(encoding="utf-8")
WHEEL = "demo-1.0.0-py3-none-any.whl"


def command(start: str) -> str:
    """The command of the page that begins so, in one line."""
    found = {" ".join(span.split()) for span in re.findall(r"`((?:nox|torchwheel) [^`]+)`", PAGE)}
    (line,) = [span for span in found if span.startswith(start)]
    return line


def run(line: str, **names: object) -> str:
    """Run a command with names in place of its capitals; returns what it prints.

    A session of nox only calls torchwheel.
    """
    words = shlex.split(line)
    call = [words[2], *words[4:]] if words[0] == "nox" else words[1:]
    for name, value in names.items():
        call = [str(value) if word == name else word for word in call]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(call) == 0
    return output.getvalue()


@pytest.fixture
def checkout(artifacts: Artifacts, monkeypatch) -> Path:
    """The folder of the matrix, with the wheels and records in `dist`."""
    folder = artifacts.matrix.parent
    text = artifacts.matrix.read_text()
    text = text.replace("selections: {", "selections: {default: [cu130-stable, pure], ")
    artifacts.matrix.write_text(text)
    artifacts.root.rename(folder / "dist")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def forge(checkout, monkeypatch):
    with forge_with_gh(checkout / "forge") as (made, programs):
        made.tags["v1.0.0"] = "0" * 40
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setenv("GH_TOKEN", made.issue(Token({"contents": "write"}, 1, 1)))
        monkeypatch.setenv("REHEARSAL_FORGE", made.address)
        yield made


@pytest.mark.usefixtures("green_gates")
def test_a_release_by_hand(checkout, forge):
    assert "assembled in dist/release" in run(command("nox -s assemble -- --selection"))
    assert run(command("nox -s assets")).startswith("v1.0.0: ")
    assert " assets are those of dist/release" in run(command("nox -s published"))
    # `nox -s earlier` does this for each release; the rehearsal runs it.
    earlier = ["gh", "release", "download", "v1.0.0", "--dir", "catalogues/v1.0.0"]
    subprocess.run([*earlier, "--pattern", "catalogue.json"], check=True)
    (checkout / "yanked.yaml").write_text("schema: 1\n")
    build = command("nox -s index -- build DIR --address https")
    assert "releases: 1" in run(build, DIR="catalogues")
    pages = (checkout / "dist" / "index").rglob("demo/index.html")
    link = f'href="https://github.com/OWNER/NAME/releases/download/v1.0.0/{WHEEL}#sha256='
    assert any(link in page.read_text() for page in pages)


@pytest.mark.usefixtures("green_gates")
def test_a_record_made_elsewhere_is_read(checkout):
    elsewhere = checkout / "elsewhere"
    elsewhere.mkdir()
    (checkout / "dist" / "smoke-pure" / "smoke").rename(elsewhere / "smoke")
    both = command("nox -s assemble -- dist FOLDER")
    run(both, FOLDER="elsewhere")
    assert len(list(Path("dist/release").glob("pure.smoke-*.json"))) == 2


def test_a_wheel_that_was_downloaded(checkout, tmp_path, monkeypatch):
    root = signing.open_root(tmp_path / "root")
    monkeypatch.setenv("TORCHWHEEL_TRUSTED_ROOT", str(root.trusted_root))
    job = signing.Job("https://github.com/OWNER/NAME", ".github/workflows/release.yml", "0" * 40)
    wheel, bundle = checkout / "dist" / "wheel-pure" / WHEEL, tmp_path / "bundle.json"
    signing.sign_files(root, job, [wheel], bundle)
    (checkout / "SHA256SUMS").write_text(f"{signing.subjects_of([wheel])[0][1]}  {WHEEL}\n")
    line = command("torchwheel verify WHEEL")
    assert "FAILED" not in run(line, WHEEL=wheel, FILE=bundle)


def test_the_plan_of_a_release(checkout, monkeypatch):
    """For GitHub and for GitLab, as the two CIs ask for it."""
    plan = json.loads(run(command("nox -s matrix -- --github release")))
    assert [entry["variant"] for entry in plan["include"]] == ["cu130-stable", "pure"]
    monkeypatch.setenv("GITHUB_OUTPUT", str(checkout / "output"))
    line = command("nox -s matrix -- --github --output").replace(
        "$GITHUB_OUTPUT", str(checkout / "output")
    )
    run(line, SELECTION="release")
    names = [one.partition("=")[0] for one in (checkout / "output").read_text().splitlines()]
    assert {"matrix", "kernels"} <= set(names)
    pipeline = json.loads(run(command("nox -s matrix -- --gitlab SELECTION"), SELECTION="release"))
    assert "assemble" in pipeline
