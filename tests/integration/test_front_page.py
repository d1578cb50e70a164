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
    assert len(rows) > 50
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
    page = served(installers).replace("ADDRESS_OF_THE_INDEX/", f"{installers.address}/index/")
    lines = {
        (installer, re.findall('"fusedops[^"]*"', line)[0], file): line
        for *shown, files in commands(page)
        for file in filter(fits_here, files)
        for installer, line in zip(("pip", "uv"), shown, strict=True)
    }
    universal = next(filter(fits_here, re.findall(r'href="files/(.*?)">universal', page)))
    for line in re.findall(r"<pre>((?:uv )?pip install .*?)</pre>", page):
        lines[line, "for all", universal] = html.unescape(line)
    assert len(lines) >= 8
    shell = Shell(tmp_path, installers.address)
    for (_, _, file), line in lines.items():
        version, tags, projects = shell.installs(line)
        _, right, _, own = parse_wheel_filename(file)
        assert (version, tags) == (str(right), set(map(str, own))), line
        assert projects >= {"fusedops", "torchwheel_runtime", "torch"}, line


def answers(page: str) -> list[str]:
    """The commands that the selector shows."""
    (shown,) = re.findall(r'<div class="answer".*?<details>', page, re.S)
    return [html.unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", shown, re.S)]


def choose(**values: str) -> str:
    """A script that chooses these, one after the other."""
    steps = [
        f"form.{name}.value = {value!r}; form.dispatchEvent(new Event('input'));"
        for name, value in values.items()
    ]
    return f"const form = document.querySelector('.questions'); {' '.join(steps)}"


@pytest.mark.nightly
def test_the_selector_gives_the_small_wheel_below_the_command_for_all(
    browse, installers: Installers
) -> None:
    page = browse(choose(toolkit="CUDA 12.4", torch="2.6", python="3.12", installer="uv"))
    (answer,) = answers(page)
    assert answer.startswith("uv pip install ")
    for word in (
        f" {installers.address}/index/cu124/torch2.6/ ",
        '"fusedops==1.0.0+cu124torch2.6"',
    ):
        assert word in answer
    pip, uv = re.findall(r"<pre[^>]*>(.*?)</pre>", page)[:2]
    assert pip.startswith("pip install ")
    assert uv.startswith("uv pip install ")
    for command in (pip, uv):
        assert f'{installers.address}/index/all/ "fusedops"' in html.unescape(command)


@pytest.mark.nightly
def test_what_no_wheel_is_for_cannot_be_chosen(browse) -> None:
    page = browse(choose(toolkit="ROCm 7.2"))
    (torches,) = re.findall(r'<select name="torch">(.*?)</select>', page, re.S)
    assert re.search(r'<option (disabled|hidden)="" (disabled|hidden)="">2\.6<', torches)
    assert len(answers(page)) >= 1


def test_without_scripts_every_command_is_there(installers: Installers) -> None:
    page = served(installers)
    rows = commands(page)
    assert len(rows) > 50
    assert all("ADDRESS_OF_THE_INDEX/" in pip for pip, _, _ in rows)
    assert '<form class="questions" hidden>' in page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


PAGES = {
    "front": "",
    "group": "cu130/torch2.11/",
    "project": "cu130/torch2.11/fusedops/",
    "all": "all/",
    "all of a project": "all/fusedops/",
    "files": "files/",
}


@pytest.mark.nightly
@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize(
    ("scheme", "text"), [("light", "rgb(0, 0, 0)"), ("dark", "rgb(255, 255, 255)")]
)
def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    page: Page, installers: Installers, path: str, scheme: str, text: str
) -> None:
    page.open(f"{installers.address}/index/{path}", width=375, scheme=scheme)
    page.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert page.value("document.documentElement.scrollWidth") == 375
    wider = "[...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1"
    wider += " && getComputedStyle(e).display != 'inline').map(e => e.outerHTML.slice(0, 80))"
    assert page.value(wider) == []
    assert page.value("getComputedStyle(document.body).color") == text


FOCUS = "document.activeElement"


def press_until(page: Page, expression: str, key: str = "Tab") -> None:
    """Press a key until an expression holds."""
    deadline = time.monotonic() + 20
    while not page.value(expression):
        assert time.monotonic() < deadline, expression
        page.press(key)


def copy(page: Page) -> None:
    """Copy the command at whose button the focus is."""
    page.press("Enter")
    deadline = time.monotonic() + 20
    while page.value(f"{FOCUS}.textContent") == "Copy":
        assert time.monotonic() < deadline
    # A screen reader is told, too.
    said = "document.querySelector('[role=status]').textContent"
    assert page.value(f"[{FOCUS}.textContent, {said}]") == ["Copied", "Copied"]


@pytest.mark.nightly
@pytest.mark.parametrize("clipboard", ["clipboard", "no clipboard"])
@pytest.mark.parametrize("path", [path for path in PAGES.values() if "files" not in path])
def test_the_keyboard_copies_what_is_shown_first(
    page: Page, installers: Installers, path: str, clipboard: str
) -> None:
    page.open(f"{installers.address}/index/{path}")
    allowed = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    page.ask("Browser.grantPermissions", permissions=allowed, origin=installers.address)
    page.value("navigator.clipboard.writeText('before')")
    read = "navigator.clipboard.readText()"
    if clipboard == "no clipboard":  # as on a page without TLS
        page.value("Object.defineProperty(navigator, 'own', {value: navigator.clipboard}); 0")
        page.value("Object.defineProperty(navigator, 'clipboard', {value: undefined}); 0")
        read = "navigator.own.readText()"
    press_until(page, f"{FOCUS}.textContent == 'Copy'")
    assert page.value(f"getComputedStyle({FOCUS}).outlineStyle") == "solid"
    copy(page)
    copied = page.value(read)
    assert copied == page.value("document.querySelector('pre').textContent")
    assert f"{installers.address}/index/{path.removesuffix('fusedops/')}" in copied


@pytest.mark.nightly
@pytest.mark.parametrize("path", list(PAGES.values())[1:])
def test_every_page_leads_back(page: Page, installers: Installers, path: str) -> None:
    page.open(f"{installers.address}/index/{path}")
    page.press("Tab")
    assert page.value(f"{FOCUS}.textContent") == "← All wheels"
    page.press("Enter")
    deadline = time.monotonic() + 20
    while page.value("location.pathname") != "/index/":
        assert time.monotonic() < deadline


@pytest.mark.nightly
def test_the_address_has_the_choice(page: Page, installers: Installers, tmp_path: Path) -> None:
    """Made with the keyboard, restored where the address is opened: from a file, too."""
    page.open(f"{installers.address}/index/")
    press_until(page, f"{FOCUS}.textContent.trim().startsWith('A smaller wheel')")
    page.press("Enter")
    for name in ("installer", "toolkit"):
        page.press("Tab")
        assert page.value(f"{FOCUS}.name") == name
        page.press("ArrowDown")
    answer = "document.querySelector('.answer pre').textContent"
    chosen, shown = page.value("location.hash"), page.value(answer)
    assert chosen.startswith("#installer=uv&toolkit=CUDA+13.0&torch=")
    assert shown.startswith("uv pip install ")
    for word in ("/index/cu130/torch", '"fusedops==1.0.0+cu130"'):
        assert word in shown
    (tmp_path / "index.html").write_text(served(installers))
    for place in (f"{installers.address}/index/", (tmp_path / "index.html").as_uri()):
        page.open("about:blank")
        page.open(f"{place}{chosen}")
        restored = page.value(answer).replace(
            f"{tmp_path.as_uri()}/", f"{installers.address}/index/"
        )
        assert restored == shown
        assert page.value("document.querySelector('.more').open")
        # What nobody can choose changes nothing.
        page.value("location.hash = '#toolkit=CUDA+1.0&torch=%3Cb%3E'; 0")
        assert page.value("document.querySelector('[name=toolkit]').value") == "CUDA 13.0"
