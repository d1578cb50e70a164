"""What is said of a build that the sandbox hid something from."""

import os
import re

import pytest

from torchwheel.sdist.failures import HiddenThings, explain_failure
from torchwheel_runtime.errors import MissingModuleError, TorchwheelError, UsageError

SHOW = "--sandbox off does not, and runs the project's code with your rights"


@pytest.fixture
def hidden(tmp_path):
    """A project with files beside it, and its copy in a cache."""
    for name in ("home/repo/demo", "home/cutlass", "cache/source/repo/demo"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/repo/README.md", "home/VERSION", "home/repo/demo/own.h"):
        (tmp_path / name).touch()
    copy = tmp_path / "cache/source/repo/demo"
    variables = {"CUTLASS": f"{tmp_path}/home/cutlass:/nonesuch", "FLAG": "1"}
    places = (tmp_path / "home/repo/demo", copy, tmp_path / "cache/source")
    return HiddenThings(*places, [tmp_path / "cache"], variables)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("[Errno 2] No such file or directory: '../README.md'", "hides HOME/repo/README.md"),
        ("FileNotFoundError: '../../VERSION'", "hides HOME/VERSION"),
        ("No such file or directory: 'COPY/../README.md'", "hides HOME/repo/README.md"),
        ("error: package directory 'HOME/cutlass' does not exist", "hides HOME/cutlass"),
        ("PermissionError: [Errno 13] Permission denied: 'HOME/VERSION'", "hides HOME/VERSION"),
        # The file's own name does not say where it was looked for.
        ("fatal error: cutlass.h: No such file", "hides HOME/cutlass, which CUTLASS names"),
        *(
            (text, "hides the network")
            for text in (
                "URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
                "fatal: unable to access 'https://host/x/': Could not resolve host: host",
                "CMake Error: downloading 'https://host/x' failed; Couldn't resolve host name",
                "ConnectionRefusedError: [Errno 111] Connection refused",
                "requests.exceptions.ConnectionError: Max retries exceeded with url: /x",
            )
        ),
    ],
)
def test_the_sandbox_and_its_option_are_named(tmp_path, hidden, reason, says):
    places = {"COPY": f"{tmp_path}/cache/source/repo/demo", "HOME": f"{tmp_path}/home"}
    for name, place in places.items():
        reason, says = reason.replace(name, place), says.replace(name, place)
    with pytest.raises(TorchwheelError) as raised, explain_failure(hidden):
        raise TorchwheelError(reason)
    assert str(raised.value) == f"{reason}; the sandbox {says}; {SHOW}"
    with pytest.raises(TorchwheelError, match=f"^{re.escape(reason)}$"), explain_failure(None):
        raise TorchwheelError(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "a.cpp:1:2: error: #error no such luck",
        # Nobody has them.
        "No such file or directory: '../NOTES.md'",
        "fatal error: /nonesuch/x.h: No such file or directory",
        # The sandbox shows them.
        "/usr/bin/ld: cannot find -lx: No such file",
        f"{os.__file__}: not found",
        "CACHE/torch.h: cannot open source file",
        "own.h: No such file or directory: 'COPY/own.h'",
    ],
)
def test_the_sandbox_is_not_blamed_for_what_it_does_not_hide(tmp_path, hidden, reason):
    del hidden  # the files
    copy = f"{tmp_path}/cache/source/repo/demo"
    reason = reason.replace("COPY", copy).replace("CACHE", f"{tmp_path}/cache")
    places = (tmp_path / "home/repo/demo", tmp_path / copy, tmp_path / "cache/source")
    hidden = HiddenThings(*places, [tmp_path / "cache"], {})
    assert hidden.explain(reason) == ""


def test_what_a_program_of_the_build_said_counts_for_the_network(tmp_path, hidden):
    log = tmp_path / "log"
    log.write_text("fatal: unable to access 'https://host/': Could not resolve host: host\n")
    reason = "subprocess.CalledProcessError: Command 'git submodule update' returned 128"
    assert hidden.explain(reason, log) == f"the sandbox hides the network; {SHOW}"
    assert hidden.explain(reason) == ""


def test_errors_of_a_kind_stay_of_it(hidden):
    with pytest.raises(UsageError, match=r"^Connection refused$"), explain_failure(hidden):
        raise UsageError("Connection refused")
    with pytest.raises(MissingModuleError, match="add --with"), explain_failure(hidden):
        raise MissingModuleError("ModuleNotFoundError: No module named 'x'")
