"""`torchwheel cache` as a user types it."""

import os
import time

import pytest

from jitmaker import Builds, Told, make_library, wanted
from torchwheel.cli import main
from torchwheel.jit.folder import jit_folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield jit_folder()
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def said(capsys, folder):
    """Runs the command; its status and what it printed, without the cache's folder."""

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["cache", *arguments])
        out, err = capsys.readouterr()
        return status, (out + err).replace(str(folder), "FOLDER")

    return run


def test_an_empty_cache(said, folder):
    status, text = said("list")
    assert status == 0
    assert "0 libraries, 0 KiB; 0 work folders, 0 KiB (cap 2.0 GiB)\nFOLDER\n" in text
    assert said("prune") == (0, "nothing to remove in FOLDER\n")
    assert not folder.parent.exists(), "to look makes nothing"


def test_the_table(said, folder, golden):
    for age, name in enumerate(("ext.scale", "ext.a_name_that_is_far_too_long_for_its_column")):
        library = make_library(folder, wanted(name=name), Builds(500_000), Told())
        os.utime(library.parent, (1_700_000_000 + age, 1_700_000_000 + age))
    library.write_bytes(b"junk")
    status, text = said("list")
    golden("cache-list.txt", text)
    assert status == 0
    assert max(map(len, text.splitlines())) <= 80


def test_prune_says_what_went_and_what_stayed(said, folder):
    for name in ("one", "two"):
        library = make_library(folder, wanted(name=name), Builds(1 << 20), Told())
    os.utime(library.parent, (1, 1))
    assert said("prune") == (
        0,
        "removed: 0 libraries, 0 KiB; 0 work folders, 0 KiB\n"
        "stays:   2 libraries, 2.0 MiB; 2 work folders, 2.0 MiB\nFOLDER\n",
    )
    assert (
        "removed: 1 library, 1.0 MiB; 0 work folders, 0 KiB"
        in said("prune", "--older-than", "30d")[1]
    )
    assert "removed: 1 library, 1.0 MiB; 1 work" in said("prune", "--max-size", "1.1M")[1]
    assert "stays:   0 libraries, 0 KiB; 0 work folders" in said("prune", "--all")[1]
    assert list(folder.iterdir()) == []


def test_prune_removes_what_is_corrupt(said, folder):
    make_library(folder, wanted(), Builds(), Told()).write_bytes(b"junk")
    assert "removed: 1 library" in said("prune")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--older-than", "30"), 'torchwheel: --older-than="30": an age expected, e.g. "30d"'),
        (("--max-size", "big"), 'torchwheel: --max-size="big": a size expected, e.g. "2G"'),
    ],
)
def test_a_wrong_call_is_one_line(said, folder, arguments, message):
    make_library(folder, wanted(), Builds(), Told())
    status, text = said("prune", *arguments)
    assert status == 2
    assert text.startswith(message)
    assert text.count("\n") == 1


def test_a_folder_of_another_user_is_one_line(said, folder):
    if os.geteuid():
        pytest.skip("only root can give files away")
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    for action in ("list", "prune"):
        status, text = said(action)
        assert status == 1
        assert text == (
            "torchwheel: FOLDER: belongs to user 65534, you are 0; "
            "set TORCHWHEEL_CACHE to a folder of your own\n"
        )


def test_an_action_must_be_named(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["cache"])
    assert stop.value.code == 2
    assert "ACTION" in capsys.readouterr().err
