"""How a command ends: its exit status, and one line for every error."""

import argparse
import errno

import pytest

from torchwheel.arguments import Command, option, port_number, positive_number
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


def test_a_name_in_an_error_cannot_draw_on_the_terminal(capsys):
    run_command("try", fails_with(TorchwheelError("a\x1b[2J\u202e\rb: bad\nc: bad")))
    assert capsys.readouterr().err == "torchwheel: a\\u001b[2J\\u202e\\u000db: bad\nc: bad\n"


@pytest.mark.parametrize("text", ["0", "-1", "1" * 5000, "²", "1e3", "x\n", "1000001"])
def test_a_number_that_is_none(capsys, text):
    option_ = option("--number", type=positive_number)
    with pytest.raises(SystemExit) as end:
        main(["try", f"--number={text}"], [Command("try", "", (option_,), run=lambda _: 0)])
    assert end.value.code == 2
    assert "a whole number of at least 1 expected" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "65536", "9" * 40, "http"])
def test_a_port_that_is_none(text):
    with pytest.raises(argparse.ArgumentTypeError, match="a port expected, 0 to 65535"):
        port_number(text)


def test_the_help_of_a_command_is_no_error(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "usage: torchwheel" in capsys.readouterr().out


def test_a_status_passes_through(capsys):
    assert run_command("try", lambda: 2) == 2
    assert capsys.readouterr() == ("", "")
