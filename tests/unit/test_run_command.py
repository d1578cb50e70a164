"""How a command ends: its exit status, and one line for every error."""

import errno

import pytest

from torchwheel.arguments import Command
from torchwheel.cli import main
from torchwheel.console import run_command
from torchwheel.errors import TorchwheelError, UsageError


def fails_with(error: BaseException):
    def run(_: object = None) -> int:
        raise error

    return run


FAULT = "; this is a fault of torchwheel: `torchwheel --debug try …` shows where; report it"


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (TorchwheelError("x: bad"), 1, "x: bad"),
        (UsageError("x: bad"), 2, "x: bad"),
        (
            PermissionError(errno.EROFS, "Read-only file system", "/x"),
            1,
            "/x: expected a place that can be written, found a read-only file system; "
            "name another place",
        ),
        (RecursionError("deep\ndeeper"), 1, f"try: RecursionError: deep deeper{FAULT}"),
        (UnicodeEncodeError("ascii", "ä", 0, 1, "no"), 1, None),
        (KeyError("file"), 1, f"try: KeyError: 'file'{FAULT}"),
        (MemoryError(), 1, f"try: MemoryError{FAULT}"),
        (KeyboardInterrupt(), 1, "stopped; run again to go on"),
    ],
)
def test_every_error_is_one_line_and_a_status(capsys, error, status, line):
    assert main(["try"], [Command("try", "", run=fails_with(error))]) == status
    (printed,) = capsys.readouterr().err.splitlines()
    assert line is None or printed == f"torchwheel: {line}"


def test_the_traceback_is_shown_on_demand():
    for error in (KeyError("file"), TorchwheelError("x"), OSError(errno.EIO, "x")):
        with pytest.raises(type(error)):
            main(["--debug", "try"], [Command("try", "", run=fails_with(error))])


def test_a_reader_that_went_away_ends_it_quietly(capsys):
    assert run_command("try", fails_with(BrokenPipeError())) == 1
    assert capsys.readouterr().err == ""


def test_a_status_passes_through(capsys):
    assert run_command("try", lambda: 2) == 2
    assert capsys.readouterr() == ("", "")
