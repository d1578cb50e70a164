"""How a command ends: its exit status, and one line for every error."""

import errno
import io
import os
import re
import subprocess
import sys
import time

import pytest

from checkout import python_path
from torchwheel import programs
from torchwheel.cli import main
from torchwheel_runtime import console
from torchwheel_runtime.arguments import PROGRESS, Command, option, port_number, positive_number
from torchwheel_runtime.console import Terminal, run_command
from torchwheel_runtime.errors import (
    DiskFullError,
    MissingModuleError,
    TorchwheelError,
    UsageError,
    program_error,
)
from torchwheel_runtime.files import explain_full_disk
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import table_rows


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
        (KeyboardInterrupt(), 130, "stopped; run again to go on"),
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


@pytest.mark.parametrize(("run", "status"), [(fails_with(BrokenPipeError()), 1), (lambda: 2, 2)])
def test_a_reader_that_went_away_and_a_status_are_no_words(capsys, run, status):
    assert run_command("try", run) == status
    assert capsys.readouterr() == ("", "")


def test_a_name_in_an_error_cannot_draw_on_the_terminal(capsys):
    run_command("try", fails_with(TorchwheelError("a\x1b[2J\u202e\rb: bad", "c\nd: bad")))
    says = "torchwheel: a\\u001b[2J\\u202e\\u000db: bad\nc\\u000ad: bad\n"
    assert capsys.readouterr().err == says


ODD = {
    "\x1b[2J\x1bc\x07\r": "\\u001b[2J\\u001bc\\u0007\\u000d",
    "\x9b2J\x7f": "\\u009b2J\\u007f",
    "\u202e\u2066\u200b\u2028": "\\u202e\\u2066\\u200b\\u2028",
    # Bytes of a file's name stay bytes, but not where a terminal reads a character that draws.
    "\udcff\udcc3\udcb6": "\udcffö",
    "\udcc2\udc9b2J": "\\udcc2\\udc9b2J",
    "\ud800": "\\ud800",
    "[/b] :x: ö 語 \t": "[/b] :x: ö 語 \t",
}


def prints(text: str):
    def run() -> int:
        print(text)
        print(text, file=sys.stderr)
        Terminal().say(text)
        with Terminal().live_line() as progress:
            progress.step(text)
        return 0

    return run


@pytest.mark.parametrize("text", ODD)
def test_nothing_that_is_printed_can_draw_on_the_terminal(monkeypatch, text):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    assert run_command("try", prints(text)) == 0
    stream.seek(0)
    printed, error, said, step = stream.read().splitlines()
    assert printed == error == ODD[text]
    expected = ODD[text].expandtabs(8).rstrip()
    assert said.partition("s  ")[2].rstrip() == expected
    assert step.partition("s    ")[2].removesuffix("  0.0 s").rstrip() == expected


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_line_draws_and_nothing_else_does(monkeypatch):
    text, out, before = "\x1bc\x1b[2J\u202e[/b]\n", Screen(), sys.stdout
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", out)
    with Terminal().live_line() as progress:
        progress.step(text)
        print("\x1bc", file=sys.stderr)
        progress.step(text)
        progress.say(text)
        print(text)
    escaped = "\\u001bc\\u001b[2J\\u202e[/b]\\u000a"
    erase = "\r\x1b[K"
    step, printed, again, said, *_ = out.getvalue().split(erase)[1:]
    assert (step, printed, again) == (f"0:00  {escaped}", "\\u001bc\n", f"0:00  {escaped}")
    assert said.endswith(f"s  {escaped}\n")
    assert sys.stdout is before


def test_a_log_is_told_each_minute_which_step_still_runs(monkeypatch):
    """A build of ten minutes without a line looks like one that hangs."""
    monkeypatch.setattr(console, "SILENCE", 0.05)
    out = io.StringIO()
    with Terminal(out).live_line() as progress:
        progress.say("begun")
        time.sleep(0.2)
        assert out.getvalue().count("\n") == 1  # no step yet
        progress.step("image a: building")
        while out.getvalue().count("\n") < 3:
            time.sleep(0.01)
    lines = [line.partition("s  ")[2] for line in out.getvalue().splitlines()]
    assert lines[0] == "begun"
    assert set(lines[1:-1]) == {"  image a: building: for 0 s now"}
    assert lines[-1].startswith("  image a: building  0.")
    said = len(lines)
    time.sleep(0.2)
    assert len(out.getvalue().splitlines()) == said


@pytest.mark.parametrize(
    ("columns", "drawn"),
    [("10", "0:00  aaa"), ("0", f"0:00  {'a' * 73}"), ("x", f"0:00  {'a' * 73}")],
)
def test_a_live_line_is_no_wider_than_the_terminal(monkeypatch, columns, drawn):
    out = Screen()
    monkeypatch.setenv("COLUMNS", columns)
    terminal = Terminal(out)
    terminal.step("a" * 1000)
    assert out.getvalue() == f"\r\x1b[K{drawn}"


def test_an_argument_cannot_draw_on_the_terminal(capsys):
    with pytest.raises(SystemExit):
        main(["try", "--\x1b[2J\nx"], [Command("try", "", run=lambda _: 0)])
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --\\u001b[2J\\u000ax\n")


def test_a_traceback_cannot_draw_on_the_terminal(tmp_path):
    (tmp_path / "\x1bc.yaml").write_text("a: 1\n")
    command = [sys.executable, "-m", "torchwheel", "--debug", "matrix"]
    command += ["--matrix", "\x1bc.yaml"]
    env = {"PYTHONPATH": python_path()}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert "Traceback" in done.stderr
    assert "\\u001bc.yaml:1: " in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        *(
            (positive_number, text, "a whole number of at least 1 expected")
            for text in ("0", "-1", "1" * 5000, "²", "1e3", "x\n", "1000001")
        ),
        *((port_number, text, "a port expected, 0 to 65") for text in ("-1", "65536", "9" * 40)),
        (port_number, "http", "a port expected, 0 to 65535"),
    ],
)
def test_a_number_that_is_none(capsys, kind, text, says):
    given = option("--number", type=kind)
    with pytest.raises(SystemExit) as end:
        main(["try", f"--number={text}"], [Command("try", "", (given,), run=lambda _: 0)])
    assert end.value.code == 2
    assert says in capsys.readouterr().err


# What an error of the operating system means, in one line.


def of(number: int, path: object = "/a/b") -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOENT, "expected a file or folder, found none; check the path"),
        (
            errno.EACCES,
            "expected a file or folder that this user may use, found no permission; change",
        ),
        (errno.EROFS, "expected a place that can be written, found a read-only file system; name"),
        (errno.ENOSPC, "expected space on the disk, found none left; free some and run again"),
        (errno.EDQUOT, "expected space in this user's quota, found none left; free some and run"),
        (errno.EFBIG, "expected room below the limit on the size of a file, found a larger file; "),
        (errno.ENOTDIR, "expected a folder, found a file in the path; remove the file, or name"),
        (
            errno.ELOOP,
            "expected a file or folder, found links that lead in a ring; remove the link",
        ),
        (errno.EXDEV, "Invalid cross-device link"),
    ],
)
def test_an_error_of_the_system(number, says):
    assert explain(of(number)).startswith(f"/a/b: {says}")


NO_FOLDER = "No usable temporary directory found in ['/tmp']"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        # A path is on one line and not too long.
        (of(errno.ENOENT, b"a\xff\nb"), "a\\udcff\\u000ab: "),
        (of(errno.ENOENT, "x" * 5000), "x" * 100 + "…" + "x" * 100 + ": "),
        (of(errno.ENOENT, 3), "file handle 3: "),
        (of(errno.ENOENT, ""), '"": '),
        # No file is named; words that Python adds are kept.
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "here: expected space on the disk, fou"),
        (FileNotFoundError(errno.ENOENT, NO_FOLDER), f"here: {NO_FOLDER}"),
        (UsageError("a: b"), "a: b"),
        (ValueError("two\nlines"), "here: ValueError: two lines"),
        (RecursionError(), "here: RecursionError"),
        (OSError("no number"), "here: OSError: no number"),
    ],
)
def test_an_error_and_its_place(error, says):
    assert explain(error, "here").startswith(says)


def test_every_text_is_one_line():
    for number in errno.errorcode:
        assert explain(of(number)).isprintable()


# Errors are told apart by their types, whatever their messages say.


WORDS = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_by_the_cause_of_an_error_not_by_its_message(tmp_path, number):
    def write():
        try:
            raise OSError(number, "anything at all")
        except OSError as error:
            raise TorchwheelError("x.o: cannot be written") from error

    with pytest.raises(DiskFullError, match="no space left"), explain_full_disk(tmp_path):
        write()


@pytest.mark.parametrize("error", [TorchwheelError(f"{WORDS}.txt: bad"), ValueError(WORDS)])
def test_an_error_that_only_has_the_words_in_it_passes_through(tmp_path, error):
    with pytest.raises(type(error)) as caught, explain_full_disk(tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (f"ld: x.so: {WORDS}", DiskFullError),
        ("ModuleNotFoundError: No module named 'wheel'", MissingModuleError),
        ("error: expected ';'", TorchwheelError),
    ],
)
def test_a_program_that_failed(reason, kind):
    error = program_error(reason)
    assert (type(error), str(error)) == (kind, reason)
    assert not isinstance(error, UsageError)


# Colours, and how much is said.

CODES = re.compile(r"\x1b\[\d*m")
OTHERS = {"NO_COLOR": "", "FORCE_COLOR": "", "TERM": "xterm"}
TABLE = (("ok", "one", "passed"), ("FAILED", "\x1b[31mtwo", "no"))


def shows(_: object) -> int:
    print("\n".join(table_rows("<7 <6 <", TABLE)))
    Terminal().say("said")
    programs.stream(["echo", "of a program"], lambda _: None, log=io.StringIO())
    raise TorchwheelError("x: bad")


def run_shows(monkeypatch, *words, out=Screen, err=io.StringIO, **variables):
    """What is printed on both streams, of which each may be a terminal."""
    for name, text in (OTHERS | variables).items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys, "stdout", out())
    monkeypatch.setattr(sys, "stderr", err())
    streams = sys.stdout, sys.stderr
    assert main([*words], [Command("try", "", (PROGRESS,), run=shows)]) == 1
    return tuple(stream.getvalue() for stream in streams)


@pytest.mark.parametrize(
    ("words", "variables", "streams", "coloured"),
    [
        ("try", {}, (Screen, io.StringIO), (True, False)),
        ("try", {}, (io.StringIO, Screen), (False, True)),
        ("try", {}, (io.StringIO, io.StringIO), (False, False)),
        ("try", {"NO_COLOR": "1"}, (Screen, Screen), (False, False)),
        ("try", {"TERM": "dumb"}, (Screen, Screen), (False, False)),
        ("try", {"FORCE_COLOR": "1"}, (io.StringIO, io.StringIO), (True, True)),
        ("try", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, (Screen, Screen), (False, False)),
        ("try --color never", {"FORCE_COLOR": "1"}, (Screen, Screen), (False, False)),
        ("--color never try", {}, (Screen, Screen), (False, False)),
        ("try --color always", {"NO_COLOR": "1"}, (io.StringIO, Screen), (True, True)),
        ("--color always try --color auto", {}, (io.StringIO, Screen), (False, True)),
    ],
)
def test_colours_are_for_who_sees_them(monkeypatch, words, variables, streams, coloured):
    out, err = streams
    found = run_shows(monkeypatch, *words.split(), out=out, err=err, **variables)
    assert tuple(bool(CODES.search(text)) for text in found) == coloured
    # They have no width, and what is foreign brings none.
    plain = "ok       one            passed\nFAILED   \\u001b[31mtwo  no\n"
    assert CODES.sub("", found[0]) == plain
    if coloured[0]:
        good, bad, end = "\x1b[32m", "\x1b[31m", "\x1b[m"
        row = f"{good}ok{end}       one            {good}passed{end}\n"
        assert found[0].startswith(f"{row}{bad}FAILED{end}   ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("try", ("said", "torchwheel: x: bad")),
        ("try -q", ("torchwheel: x: bad",)),
        ("try -v", ("said", "of a program", "torchwheel: x: bad")),
    ],
)
def test_how_much_is_said(monkeypatch, words, says):
    out, err = run_shows(monkeypatch, *words.split(), out=io.StringIO)
    assert tuple(line.rpartition("s  ")[2] for line in err.splitlines()) == says
    assert len(out.splitlines()) == 2


def test_less_and_more_exclude_each_other(capsys):
    with pytest.raises(SystemExit) as end:
        main(["try", "-q", "-v"], [Command("try", "", (PROGRESS,), run=shows)])
    assert end.value.code == 2
