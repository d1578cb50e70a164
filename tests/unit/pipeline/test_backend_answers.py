"""What a foreign build backend may answer: each other answer is one line, and nothing is run."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from packaging.requirements import Requirement

from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.own_build import _install
from torchwheel.sdist.request import SdistRequest, check_request, parse_settings
from torchwheel_runtime import pip
from torchwheel_runtime.errors import TorchwheelError, UsageError
from wheelmaker import make_wheel

PYPROJECT = """
[build-system]
requires = {requires}
build-backend = "backend"
backend-path = {path}
"""
BACKEND = """
import json, os, sys
from pathlib import Path

def get_requires_for_build_wheel(config_settings=None):
    return {requires}

def build_wheel(out, config_settings=None, metadata_directory=None):
    def make(name):
        Path(out, name).write_text("x")
        return name
    answer = Path(sys.argv[2], "output.json")
    return {wheel}
"""


def build(
    folder: Path,
    *,
    requires: str = "[]",
    wheel: str = "1",
    declared: str = "[]",
    path: str = "['.']",
) -> Path:
    """Build a project whose hooks return what these expressions give."""
    source = folder / "demo"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT.format(requires=declared, path=path))
    (source / "backend.py").write_text(BACKEND.format(requires=requires, wheel=wheel))
    return build_wheel(source, {}, folder / "out", folder / "log", lambda _: None)


def test_settings_reach_the_backend(tmp_path):
    """As pip's: a key that comes twice has a list."""
    settings = parse_settings(["--build-option=--fast", "a=1", "a=2", "empty="])
    source = tmp_path / "demo"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT.format(requires="[]", path="['.']"))
    (source / "backend.py").write_text("""
from pathlib import Path

def build_wheel(out, config_settings=None, metadata_directory=None):
    Path(out, "a.whl").write_text(repr(config_settings))
    return "a.whl"
""")
    made = build_wheel(
        source, {}, tmp_path / "out", tmp_path / "log", lambda _: None, settings=settings
    )
    assert made.read_text() == repr({"--build-option": "--fast", "a": ["1", "2"], "empty": ""})


@pytest.mark.parametrize("text", ["fast", "=1", ""])
def test_a_setting_is_a_key_and_a_value(text):
    with pytest.raises(UsageError, match=r"--config-setting .*: expected KEY=VALUE"):
        parse_settings([text])


NAME = "demo: build_wheel of its build backend: return_val: expected the name of a file, found "
TEXT = "demo: build_wheel of its build backend: return_val: expected text, found "
ANSWER = "demo: build_wheel of its build backend: expected "


@pytest.mark.parametrize(
    ("wheel", "line"),
    [
        ("None", f"{TEXT}null"),
        ("7", f"{TEXT}7"),
        ("['a.whl']", f"{TEXT}a list"),
        ("''", f'{NAME}""'),
        ("'../../x.whl'", f'{NAME}"../../x.whl"'),
        ("'/etc/passwd'", f'{NAME}"/etc/passwd"'),
        ("'a\\0.whl'", f"{NAME}"),
        ("'a\\nb.whl'", f"{NAME}"),
        ("'none.whl'", f'{ANSWER}a file "none.whl", found none'),
        ("Path(out, 'a.whl').mkdir() or 'a.whl'", f'{ANSWER}a file "a.whl", found none'),
        ("os.mkfifo(Path(out, 'a.whl')) or 'a.whl'", f'{ANSWER}a file "a.whl", found none'),
        ("os.symlink('/etc/passwd', Path(out, 'a.whl')) or 'a.whl'", f'{ANSWER}a file "a.whl"'),
        ("os._exit(0)", f"{ANSWER}an answer, found none"),
        ("os.mkfifo(answer) or os._exit(0)", f"{ANSWER}an answer, found none"),
        ("os.symlink('/dev/zero', answer) or os._exit(0)", f"{ANSWER}an answer, found none"),
        ("answer.write_text('garbage') and os._exit(0)", f"{ANSWER}JSON, found at line 1"),
        ("answer.write_text('[]') and os._exit(0)", f"{ANSWER}an object, found a list"),
        ("answer.write_text('[' * 10**5) and os._exit(0)", f"{ANSWER}at most 32 levels"),
        ("answer.touch() or os.truncate(answer, 1 << 40) or os._exit(0)", f"{ANSWER}at most 8 MiB"),
        ("sys.exit('needs a compiler')", "Backend subprocess exited when trying to invoke"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_wheel_that_is_none_is_one_line(tmp_path, wheel, line):
    start = time.monotonic()
    with pytest.raises(TorchwheelError) as caught:
        build(tmp_path, wheel=wheel)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 30


def test_a_wheel_is_taken_whatever_the_backend_prints(tmp_path):
    built = build(tmp_path, wheel="print('{}', flush=True) or make('demo.whl')")
    assert built == tmp_path / "out" / "demo.whl"


HOOK = "demo: get_requires_for_build_wheel of its build backend: "
NO_OPTION = 'expected requirements such as "numpy>=2", found '
NOT_REQUIREMENTS = {
    # The text, as the message has it.
    "--log=/tmp/x": '"--log=/tmp/x"',
    "-r/etc/passwd": '"-r/etc/passwd"',
    "-e.": '"-e."',
    "./evil.tar.gz": '"./evil.tar.gz"',
    "/x/evil.whl": '"/x/evil.whl"',
    "git+https://host/x": '"git+https://host/x"',
    "https://host/x.whl": '"https://host/x.whl"',
    "a\n--log=x": '"a\\\\n--log=x"',
    "a --hash=x": '"a --hash=x"',
    "": '""',
    "a==" + "1" * 5000: '"a==1',
}


@pytest.mark.parametrize(
    ("requires", "line"),
    [
        ("None", f"{HOOK}return_val: expected a list, found null"),
        ("'abc'", f'{HOOK}return_val: expected a list, found "abc"'),
        ("{'a': 1}", f"{HOOK}return_val: expected a list, found an object"),
        ("[None]", f"{HOOK}return_val[0]: expected text, found null"),
        ("[['a']]", f"{HOOK}return_val[0]: expected text, found a list"),
        *((repr([text]), f"{HOOK}{NO_OPTION}{found}") for text, found in NOT_REQUIREMENTS.items()),
    ],
)
def test_requirements_that_are_none_are_one_line(tmp_path, requires, line):
    with pytest.raises(TorchwheelError) as caught:
        build(tmp_path, requires=requires)
    assert str(caught.value).startswith(line.replace("\\\\n", "\\n"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", NOT_REQUIREMENTS)
def test_no_foreign_text_is_an_option_of_pip_or_uv(tmp_path, text):
    declared = json.dumps([text])
    with pytest.raises(TorchwheelError, match=r"pyproject.toml: build-system.requires: expected"):
        build(tmp_path, declared=declared)
    request = SdistRequest(tmp_path / "demo", tmp_path, requires=(text,))
    with pytest.raises(TorchwheelError, match=r"--with .*: a requirement expected"):
        check_request(request)
    with mock.patch("torchwheel_runtime.process.run", side_effect=AssertionError("it was run")):
        with pytest.raises(TorchwheelError, match=r"^x: expected requirements"):
            pip.pip_install(Path("python"), [text], offline=False, doing="x")
        with pytest.raises(TorchwheelError, match="build requirements: expected requirements"):
            _install([text], tmp_path / "torch.txt")


def test_requirements_and_files_follow_our_own_options(tmp_path, monkeypatch):
    calls: list[Sequence[str]] = []
    monkeypatch.setattr(pip, "run_pip", lambda arguments, *_, **__: calls.append(arguments))
    monkeypatch.chdir(tmp_path)
    # PEP 508 lets a project name an address.
    named = ["numpy>=2", "a @ https://host/a.whl"]
    pip.pip_install(
        Path("python"), [Path("-x.whl"), *named], options=("-c", "y"), offline=False, doing="x"
    )
    (call,) = calls
    assert call == ["install", "-c", "y", str(tmp_path / "-x.whl"), *sorted(named)]
    assert all(map(Requirement, named))


@pytest.mark.parametrize("name", ["TARGET", "PREFIX", "ROOT", "USER", "DRY_RUN", "NO_DEPS"])
def test_no_setting_of_the_user_takes_requirements_out_of_a_builds_environment(monkeypatch, name):
    monkeypatch.setenv(f"PIP_{name}", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "https://host/simple")
    with mock.patch("torchwheel_runtime.process.run") as run:
        run.return_value.status = 0
        pip.pip_install(Path("python"), ["numpy"], offline=False, doing="x")
    variables = run.call_args.kwargs["env"]
    assert (f"PIP_{name}" in variables, "PIP_INDEX_URL" in variables) == (False, True)


def test_a_conflict_names_the_constraint_that_causes_it(tmp_path):
    for version in ("1.0", "2.0"):
        make_wheel(tmp_path, name="other", version=version, requires=())
    (tmp_path / "constraints.txt").write_text("other==1.0\n")
    options = ["--constraint", f"{tmp_path}/constraints.txt", "--find-links", str(tmp_path)]
    with pytest.raises(TorchwheelError) as raised:
        pip.pip_install(
            Path(sys.executable), ["other>=2"], options=options, offline=True, doing="x"
        )
    causes = "The user requested other>=2; The user requested (constraint) other==1.0"
    assert str(raised.value).endswith(f"have conflicting dependencies: {causes}")


@pytest.mark.parametrize(
    ("path", "line"),
    [("['..']", "paths must be inside source tree"), ("['/tmp']", "paths must be relative")],
)
def test_a_backend_outside_its_project_is_one_line(tmp_path, path, line):
    with pytest.raises(TorchwheelError, match=line):
        build(tmp_path, path=path)


def test_a_pipe_as_pyproject_is_one_line(tmp_path):
    (tmp_path / "setup.py").touch()
    os.mkfifo(tmp_path / "pyproject.toml")
    with pytest.raises(TorchwheelError, match="expected a file, found something that is no file"):
        build_wheel(tmp_path, {}, tmp_path / "out", tmp_path / "log", lambda _: None)
