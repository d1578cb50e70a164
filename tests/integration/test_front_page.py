"""The front page in a browser: its selector, and what pip and uv make of each command it shows."""

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import uv
from browser import QUIET, Page, browser
from installers import Installers, Question, make_indexes
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from torchwheel.index.serve import serve_in_background
from torchwheel_runtime.arch.releases import torch_releases

pytestmark = pytest.mark.integration

MACHINES = {
    "x86_64": ("x86_64-unknown-linux-gnu", "manylinux_2_17_x86_64"),
    "aarch64": ("aarch64-unknown-linux-gnu", "manylinux_2_17_aarch64"),
}


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installers]:
    torches = [f"{minor}.0" for minor in torch_releases()]
    out = make_indexes(tmp_path_factory.mktemp("front"), torches)
    with serve_in_background(out) as address:
        yield Installers(tmp_path_factory.mktemp("installers"), address)


def served(installers: Installers) -> str:
    with urlopen(f"{installers.address}/index/") as answer:  # noqa: S310 - on loopback
        return answer.read().decode()


@pytest.fixture(scope="module")
def browse(installers: Installers, tmp_path_factory: pytest.TempPathFactory):
    """Opens the front page in headless Chromium, runs a script, and gives the page's HTML."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on PATH")

    def open_page(script: str = "", *options: str) -> str:
        folder = tmp_path_factory.mktemp("browser")
        page = folder / "page.html"
        # The front page, with what a person would do there.
        text = served(installers).replace("location.href", f'"{installers.address}/index/"')
        page.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
        done = subprocess.run(
            [program, "--headless", "--no-sandbox", "--disable-gpu", *QUIET.split(), *options]
            + [f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    return open_page


def commands(page: str) -> list[tuple[str, str, list[str]]]:
    """Of each row of the lists: the command of pip, that of uv, and the files that it names."""
    found = []
    for row in re.findall(r'<tr class="choice".*?</tr>', page, re.S):
        pip, uv = (
            html.unescape(re.search(rf'<code class="{name}">(.*?)</code>', row)[1])
            for name in ("pip", "uv")
        )
        found.append((pip, uv, re.findall(r'<div class="note">(.*?)</div>', row)))
    return found


def question(command: str, address: str, file: str) -> Question:
    """What a command asks for on the machine that a file is for."""
    *program, option, index, wanted = shlex.split(command)
    assert [*program, option] in (
        ["pip", "install", "--index-url"],
        ["uv", "pip", "install", "--default-index"],
    )
    assert index.startswith(f"{address}/index/")
    group = urlsplit(index).path.removeprefix("/index/").strip("/")
    _, _, python, _, platform = file.removesuffix(".whl").split("-")
    machine = next(name for name in (*MACHINES, "any") if platform.endswith(name))
    version = re.fullmatch(r"cp3(\d+)", python)
    more = ("--python-version", f"3.{version[1]}") if version else ()
    return Question(None, group, wanted, MACHINES.get(machine, MACHINES["x86_64"]), more)


@pytest.mark.nightly
def test_each_command_installs_the_file_that_it_names(browse, installers: Installers) -> None:
    rows = commands(browse())
    assert len(rows) > 60
    for ask, of_row in ((installers.pip, 0), (installers.uv, 1)):
        expected = [file for row in rows for file in row[2]]
        asked = [question(row[of_row], installers.address, file) for row in rows for file in row[2]]
        answers = ask(asked)
        wrong = {
            (one.group, one.wants, file): answer.wheel
            for one, file, answer in zip(asked, expected, answers, strict=True)
            if answer.wheel != file
        }
        assert not wrong


def fits_here(file: str) -> bool:
    """Whether this Python takes a wheel."""
    return not parse_wheel_filename(file)[3].isdisjoint(sys_tags())


class Shell:
    """Runs lines in an environment whose package index is that of the test, with no cache."""

    def __init__(self, folder: Path, address: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        (self.site,) = (folder / "venv").glob("lib/python3*/site-packages")
        self.own = set(self.site.iterdir())
        pypi = f"{address}/pypi/simple/"
        programs = (folder / "venv" / "bin", Path(uv.find_uv_bin()).parent)
        self.environ = {
            "PATH": ":".join(map(str, (*programs, "/usr/bin", "/bin"))),
            "VIRTUAL_ENV": str(folder / "venv"),
            "HOME": str(folder),
            **{"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": pypi, "PIP_NO_CACHE_DIR": "1"},
            **{"UV_NO_CONFIG": "1", "UV_DEFAULT_INDEX": pypi, "UV_NO_CACHE": "1"},
        }

    def installs(self, line: str) -> tuple[str, set[str], set[str]]:
        """Version and tags of the fusedops that a line installs; all projects that are there.

        The torch of the line's group is there before, and nothing else.
        """
        for path in set(self.site.iterdir()) - self.own:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        minor = re.search(r"/torch([\d.]+)/", line)
        line = f"pip install 'torch{f'=={minor[1]}.*' if minor else ''}' && {line}"
        done = subprocess.run(
            ["bash", "-c", line], env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        found = {d.name: d for d in distributions(path=[str(self.site)])}
        tags = re.findall(r"^Tag: (\S+)$", found["fusedops"].read_text("WHEEL") or "", re.M)
        return found["fusedops"].version, set(tags), set(found)


@pytest.mark.nightly
def test_the_line_itself_installs_the_file_that_it_names(
    installers: Installers, tmp_path: Path
) -> None:
    """Of the lines for this machine, one for each installer, requirement and file."""
    page = served(installers).replace("ADDRESS_OF_THIS_PAGE/", f"{installers.address}/index/")
    lines = {
        (installer, re.findall('"fusedops[^"]*"', line)[0], file): line
        for *shown, files in commands(page)
        for file in filter(fits_here, files)
        for installer, line in zip(("pip", "uv"), shown, strict=True)
    }
    assert len(lines) >= 8
    shell = Shell(tmp_path, installers.address)
    for (_, _, file), line in lines.items():
        version, tags, projects = shell.installs(line)
        _, right, _, own = parse_wheel_filename(file)
        assert (version, tags) == (str(right), set(map(str, own))), line
        assert projects >= {"fusedops", "torchwheel_runtime", "torch"}, line


def answers(page: str) -> list[str]:
    """The commands that the selector shows."""
    (shown,) = re.findall(r'<div class="answer".*?<p>', page, re.S)
    return [html.unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", shown, re.S)]


def choose(**values: str) -> str:
    """A script that chooses these, one after the other."""
    steps = [
        f"form.{name}.value = {value!r}; form.dispatchEvent(new Event('input'));"
        for name, value in values.items()
    ]
    return f"const form = document.querySelector('form'); {' '.join(steps)}"


@pytest.mark.nightly
def test_the_selector_gives_the_universal_wheel_first(browse, installers: Installers) -> None:
    script = choose(toolkit="CUDA 12.4", torch="2.6", python="3.12", installer="uv")
    index = f"uv pip install --default-index {installers.address}/index/cu124/torch2.6/"
    assert answers(browse(script)) == [
        f'{index} "fusedops==1.0.0"',
        f'{index} "fusedops==1.0.0+cu124torch2.6"',
    ]


@pytest.mark.nightly
def test_what_no_wheel_is_for_cannot_be_chosen(browse) -> None:
    page = browse(choose(toolkit="ROCm 7.2"))
    (torches,) = re.findall(r'<select name="torch">(.*?)</select>', page, re.S)
    assert re.search(r'<option (disabled|hidden)="" (disabled|hidden)="">2\.6<', torches)
    assert len(answers(page)) >= 1


def test_without_scripts_every_command_is_there(installers: Installers) -> None:
    page = served(installers)
    rows = commands(page)
    assert len(rows) > 60
    assert all("ADDRESS_OF_THIS_PAGE/" in pip for pip, _, _ in rows)
    assert "<form hidden>" in page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scheme", "text"), [("light", "rgb(0, 0, 0)"), ("dark", "rgb(255, 255, 255)")]
)
def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    page: Page, installers: Installers, scheme: str, text: str
) -> None:
    page.open(f"{installers.address}/index/", width=360, scheme=scheme)
    page.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert page.value("document.documentElement.scrollWidth") == 360
    wider = "[...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1"
    wider += " && getComputedStyle(e).display != 'inline').map(e => e.outerHTML.slice(0, 80))"
    assert page.value(wider) == []
    assert page.value("getComputedStyle(document.body).color") == text


@pytest.mark.nightly
def test_the_keyboard_is_enough(page: Page, installers: Installers) -> None:
    """To choose, to copy the command, and to open a list."""
    page.open(f"{installers.address}/index/")
    clipboard = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    page.ask("Browser.grantPermissions", permissions=clipboard, origin=installers.address)
    focus = "document.activeElement"
    page.press("Tab")
    assert page.value(f"{focus}.name") == "installer"
    page.press("ArrowDown")
    for name in ("toolkit", "torch", "python"):
        page.press("Tab")
        assert page.value(f"{focus}.name") == name
    page.press("Tab")
    outline = f"getComputedStyle({focus}).outlineStyle"
    assert page.value(f"[{focus}.textContent, {outline}]") == ["Copy", "solid"]
    page.press("Enter")
    deadline = time.monotonic() + 20
    while page.value(f"{focus}.textContent") != "Copied":
        assert time.monotonic() < deadline
    copied = page.value("navigator.clipboard.readText()")
    assert copied.startswith("uv pip install --default-index ")
    assert copied == page.value("document.querySelector('.answer pre').textContent")
    while page.value(f"{focus}.tagName") != "SUMMARY":
        page.press("Tab")
    page.press("Enter")
    assert page.value(f"{focus}.parentElement.open")
