import re
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import python_path
from programmaker import run_python
from torchwheel import cli
from torchwheel_runtime.arguments import Command
from wheelmaker import make_wheel

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
    return run_python(BASE_ALONE, *call.split(), cwd=folder, env=env)


PIPELINE = ("matrix", "wheels", "kernels cu130", "images", "base-images")
PIPELINE += ("check x.whl", "assemble x", "toolkit cu130")
EVIDENCE = r'"cryptography>=47" "pydantic>=2\.8" "sigstore\S+"'


@pytest.mark.parametrize(
    ("call", "missing", "wanted"),
    [
        *((call, "[a-z]+", r'("\S+" )*"pydantic>=2\.8"( "\S+")*') for call in PIPELINE),
        ("verify x.whl --repository owner/name", "cryptography", EVIDENCE),
    ],
)
def test_a_command_of_an_extra_says_what_to_install(tmp_path, call, missing, wanted):
    done = base_alone(call, tmp_path)
    assert done.returncode == 1
    line = rf"torchwheel: [a-z-]+ needs {missing}: run `\S+ -m pip install {wanted}`\n"
    assert re.fullmatch(line, done.stderr), done.stderr
    # Each by its own name: torchwheel's could be somebody else's on an index.
    assert '"torchwheel' not in done.stderr


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("cache list", ""),
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
        ("docter", 'no command "docter"; did you mean "doctor"'),
        ("cache lst", 'no command "lst"; did you mean "list"?'),
        ("matrix nope", 'no variant or selection "nope"; expected one of: default, release, '),
        ("matrix cu130", 'no variant or selection "cu130"; did you mean "cu130-*"?'),
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
    program = ["-c", EVERY_HELP] if "of" in words else ["-m", "torchwheel.cli", *words]
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
