import json
import operator
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from checkout import python_path
from programmaker import run_python
from torchwheel import cli
from torchwheel.completions import completions_script
from torchwheel_runtime.arguments import Command
from wheelmaker import make_wheel

ROOT = Path(__file__).parents[2]

# The run-time half without the extra: modules of the latter are not there.
BASE_ALONE = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name in "auditwheel build cryptography jinja2 pip pydantic setuptools yaml".split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
from torchwheel.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_every_command_is_carried_out():
    for command in cli.COMMANDS:
        assert all(entry.run for entry in command.commands or (command,))


class ReachedError(Exception):
    """The pipeline has the request of a command."""


@pytest.mark.parametrize(
    ("call", "pipeline"),
    [
        ("wheels --locked", "torchwheel.pipeline.wheels.wheels"),
        ("kernels cu130 --shard 1/2", "torchwheel.pipeline.kernels.kernels"),
        ("build demo --allow runtime:*:meant", "torchwheel.sdist.build.build_sdist"),
    ],
)
def test_every_option_is_obeyed_by_the_request_or_by_the_command(call, pipeline, monkeypatch):
    def reached(*_):
        raise ReachedError

    monkeypatch.setattr(pipeline, reached)
    monkeypatch.setattr("torchwheel.sdist.request.find_source", lambda name, *_: Path(name))
    monkeypatch.setattr("torchwheel.sdist.request.check_request", lambda _: None)
    options = cli.parser().parse_args(call.split())
    with pytest.raises(ReachedError):
        options.command.run(options)
    options.nobody = True
    with pytest.raises(TypeError, match="unexpected keyword argument 'nobody'"):
        options.command.run(options)


def base_alone(call: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": python_path(), "TORCHWHEEL_CACHE": "cache"}
    return run_python(BASE_ALONE, *shlex.split(call), cwd=folder, env=env)


ENTRIES = [entry for command in cli.COMMANDS for entry in command.commands or (command,)]
NAME = operator.attrgetter("name")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.extra], ids=NAME)
def test_a_command_of_an_extra_says_what_to_install(tmp_path, entry):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/setup.py").touch()
    done = base_alone(entry.examples[0], tmp_path)
    line = rf"torchwheel: {entry.name} needs [a-z]+: run `.*\[{entry.extra}\]\S*`.*\n"
    assert (done.returncode, bool(re.fullmatch(line, done.stderr))) == (1, True), done.stderr


REPOSITORY = "https://forge/owner/name"
PIP = f"{sys.executable} -m pip install"


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        ({"url": "file://FOLDER", "dir_info": {"editable": True}}, "-e 'FOLDER[evidence]'`"),
        ({"url": "file://FOLDER", "dir_info": {}}, "'FOLDER[evidence]'`"),
        ({"url": "file:///is/gone", "dir_info": {}}, None),
        (
            {"url": REPOSITORY, "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            f"'torchwheel[evidence] @ git+{REPOSITORY}@abc'`",
        ),
        (
            {
                "url": REPOSITORY,
                "vcs_info": {"vcs": "git", "commit_id": "abc"},
                "subdirectory": "pkg/torchwheel",
            },
            f"'torchwheel[evidence] @ git+{REPOSITORY}@abc#subdirectory=pkg/torchwheel'`",
        ),
        (
            {"url": "file://FOLDER/x-1-py3-none-any.whl", "archive_info": {}},
            "'torchwheel[evidence] @ file://FOLDER/x-1-py3-none-any.whl'`",
        ),
        (
            {"url": "https://host/x-1-py3-none-any.whl", "archive_info": {}},
            "'torchwheel[evidence] @ https://host/x-1-py3-none-any.whl'`",
        ),
        ({"url": "file:///is/gone-1-py3-none-any.whl", "archive_info": {}}, None),
        *((origin, None) for origin in (None, [], {"url": 1}, {"url": "x", "vcs_info": {}})),
    ],
)
def test_an_extra_comes_from_where_torchwheel_came(tmp_path, monkeypatch, origin, says):
    (tmp_path / "x-1-py3-none-any.whl").touch()
    text = json.dumps(origin).replace("FOLDER", str(tmp_path))
    info = types.SimpleNamespace(read_text={"direct_url.json": text}.get)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: info)
    index = f"--extra-index-url INDEX 'torchwheel[evidence]=={cli.__version__}'`, where INDEX is "
    index += "the index that torchwheel came from"
    expected = index if says is None else says.replace("FOLDER", str(tmp_path))
    assert cli.add_extra("evidence") == f"`{PIP} {expected}"


@pytest.mark.parametrize("text", [None, "", "no JSON"])
def test_a_place_that_cannot_be_read_is_an_index(monkeypatch, text):
    info = types.SimpleNamespace(read_text=lambda _: text)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: info)
    assert "INDEX" in cli.add_extra("pipeline")


@pytest.mark.parametrize("entry", ENTRIES, ids=NAME)
def test_the_examples_of_a_help_are_calls_and_its_page_exists(entry, capsys):
    assert entry.examples
    for example in entry.examples:
        words = shlex.split(example.partition(" > ")[0])
        assert cli.parser().parse_args(words).command is entry, example
    assert (ROOT / "docs" / entry.page).is_file()
    with pytest.raises(SystemExit):
        cli.main([*entry.name.split(), "--help"])
    told = capsys.readouterr().out
    assert f"examples:\n  torchwheel {entry.examples[0]}\n" in told
    assert f"\nmore: docs/{entry.page}\n" in told
    assert (f"\nneeds torchwheel[{entry.extra}]\n" in told) == bool(entry.extra)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("cache list", ""),
        ("jit no_such_package", "cannot be imported"),
        ("completions bash", ""),
        ("index serve .", "is not an index"),
        ("inspect no_such_package_anywhere", "found neither"),
        ("smoke x-1-py3-none-any.whl --tests .", "no such file"),
        ("install demo --index file:///nowhere", "expected the project demo, found none"),
    ],
)
def test_the_rest_needs_no_extra(tmp_path, call, says):
    done = base_alone(call, tmp_path)
    assert "[pipeline]" not in done.stderr
    assert says in done.stderr


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("docter", 'no command "docter"; did you mean "doctor"?\n'),
        ("frobnicate", 'no command "frobnicate"; expected one of: install, doctor, '),
        ("inspect torchwheal", 'found neither; did you mean "torchwheel"'),
        ("cache clean smok", 'no cache "smok"; did you mean "smoke"?'),
        ("cache lst", 'no command "lst"; did you mean "list"?'),
        ("matrix nope", 'no variant or selection "nope"; expected one of: default, release, '),
        ("matrix cu130", 'no variant or selection "cu130"; did you mean "cu130-*"?'),
        ("matrix cu13", 'no variant or selection "cu13"; did you mean "cu13*"?'),
        ("wheels --archs 99", '"99" is not an arch; expected e.g. "9.0;12.0+PTX"'),
        ("wheels --archs sm_90", '"sm_90" is not an arch; did you mean "9.0"'),
        ("wheels --archs Hoper", '"Hoper" is not an arch; did you mean "Hopper"?'),
        ("install demo --index /", "or, on loopback, http://; did you mean file:///?"),
    ],
)
def test_a_slip_gets_a_suggestion(call, says, capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    try:
        status = cli.main(call.split())
    except SystemExit as end:
        status = end.code
    assert (status, says in capsys.readouterr().err) == (2, True)


def test_a_call_without_words_is_help(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["torchwheel"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, "COMMAND" in capsys.readouterr().out) == (0, True)


def test_a_module_of_ours_that_is_missing_is_no_matter_of_the_extra(capsys):
    def broken(_):
        raise ModuleNotFoundError("No module named 'torchwheel.gone'", name="torchwheel.gone")

    commands = [Command("matrix", "", run=broken)]
    assert cli.main(["matrix"], commands) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "torchwheel: matrix: ModuleNotFoundError: No module named 'torchwheel.gone'"
    )
    assert "`torchwheel --debug matrix …`" in line
    with pytest.raises(ModuleNotFoundError):
        cli.main(["--debug", "matrix"], commands)


EVERY_HELP = """
from torchwheel.cli import COMMANDS, main
for command in COMMANDS:
    for entry in (command, *command.commands):
        try:
            main([*entry.name.split(), "--help"])
        except SystemExit as end:
            if end.code:
                raise
"""


@pytest.mark.parametrize(
    "call",
    [
        "check {wheel}",
        "check --claims auto --sarif {folder}/sarif.json --summary {folder}/page.md {wheel}",
        "inspect {wheel}",
        "matrix --matrix {root}/matrix.yaml",
        "doctor",
        "--help of all",
    ],
)
def test_a_command_needs_neither_docstrings_nor_asserts(tmp_path, call):
    wheel, root = make_wheel(tmp_path), Path(__file__).parents[2]
    words = call.format(wheel=wheel, folder=tmp_path, root=root).split()
    program = ["-c", EVERY_HELP] if "of" in words else ["-m", "torchwheel", *words]
    done = subprocess.run(
        [sys.executable, *program],
        cwd=tmp_path,
        env={"PYTHONPATH": python_path(), "PYTHONOPTIMIZE": "2", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


# Completions, in the shells themselves.

COMPLETED = {
    "torchwheel cach": {"cache"},
    "torchwheel cache ": {"clean", "list"},
    "torchwheel --debug index ": {"build", "serve"},
    "torchwheel --color ": {"always", "auto", "never"},
    "torchwheel wheels --kern": {"--kernels", "--kernels-only"},
    "torchwheel build ./x --sandbox ": {"auto", "off", "require"},
    "torchwheel completions ": {"bash", "fish", "zsh"},
    # The names of files.
    "torchwheel wheels --dist so": {"some-file"},
    "torchwheel check so": {"some-file"},
}
BASH = """
source ./script
read -ra COMP_WORDS <<< "$1"
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p torchwheel | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
[[ ${#COMPREPLY[@]} == 0 ]] && compgen -f -- "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = "source ./script; complete -C $argv[1]"
CALLS = {"bash": ["bash", "--norc", "-c", BASH, "bash"], "fish": ["fish", "-N", "-c", FISH]}


@pytest.fixture
def script(tmp_path, monkeypatch, request):
    """The completions of a shell, in a folder with a file."""
    shell = request.getfixturevalue("shell")
    if not shutil.which(shell):
        pytest.skip(f"no {shell} on PATH")
    monkeypatch.chdir(tmp_path)
    Path("some-file").touch()
    Path("script").write_text(completions_script(cli.parser(), shell))


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_commands_options_choices_and_files(shell, script):
    env = {"PATH": os.environ["PATH"], "HOME": str(Path.cwd())}
    for line, expected in COMPLETED.items():
        done = subprocess.run(
            [*CALLS[shell], line], capture_output=True, text=True, check=False, env=env
        )
        found = {text.partition("\t")[0] for text in done.stdout.splitlines()}
        assert (found - {""}, done.stderr) == (expected, ""), line


@pytest.mark.parametrize("shell", ["zsh"])
@pytest.mark.parametrize("how", ["source ./script", "mv script _torchwheel; fpath=($PWD $fpath)"])
def test_zsh_completes_a_line_that_is_typed(script, shell, how):
    """The script is sourced, or a file that compinit finds."""
    typed = {"torchwheel cach\t": "cache ", "li\t": "list "}
    start = "autoload -U compinit"
    init = "compinit -u -d dump"
    lines = [start, init, how] if how.startswith("source") else [start, how, init]
    process, terminal = os.forkpty()
    if process == 0:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(Path.cwd()),
            "TERM": "dumb",
            "PS1": "READY> ",
        }
        os.execvpe("zsh", ["zsh", "-f", "-i"], env)  # noqa: S606
    try:
        screen = wait_for(terminal, "READY> ")
        for line in lines:
            os.write(terminal, f"{line}\n".encode())
            wait_for(terminal, "READY> ")
        for text, expected in typed.items():
            os.write(terminal, text.encode())
            screen = wait_for(terminal, expected)
            assert expected in screen
    finally:
        os.close(terminal)
        os.kill(process, 9)
        os.waitpid(process, 0)


def wait_for(terminal: int, text: str) -> str:
    """What a terminal prints, until it has printed a text."""
    screen, end = "", time.monotonic() + 20
    while text not in screen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            screen += os.read(terminal, 1 << 16).decode("utf-8", "replace")
    return screen


def test_a_help_with_a_quote_is_a_word_of_fish(tmp_path):
    made = [Command("try", "it's a \\ and a $HOME", run=lambda _: 0)]
    text = completions_script(cli.parser(made), "fish")
    assert r"-a try -d 'it\'s a \\ and a $HOME'" in text
