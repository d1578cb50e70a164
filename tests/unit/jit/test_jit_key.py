"""The key, the entry and the sources of a library of the JIT cache."""

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jitmaker import wanted
from torchwheel_runtime.builder.recipe import strip_folders
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.jit import key as keys
from torchwheel_runtime.jit.key import LibraryRequest, read_sources
from torchwheel_runtime.jit.make import write_sources

# One content, one key, wherever it lies; any change, another key.


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
TEXTS = st.lists(WORDS, max_size=3).map(tuple)
FACTS = {
    "name": WORDS,
    "archs": TEXTS,
    "toolkit": WORDS,
    "torch": WORDS,
    "commands": st.lists(TEXTS, max_size=3).map(tuple),
    "own_sources": WORDS,
}
FILES = st.dictionaries(WORDS, st.binary(max_size=8), max_size=4)
REQUESTS = st.builds(
    LibraryRequest, **FACTS, source=st.sampled_from([Path("/a"), Path("/b")]), files=FILES
)


@given(REQUESTS)
def test_neither_the_order_of_files_nor_their_folder_counts(one):
    files = dict(reversed(one.files.items()))
    other = dataclasses.replace(one, source=Path("/elsewhere"), files=files)
    assert other.key == one.key


@pytest.mark.parametrize("name", FACTS)
@settings(max_examples=20)
@given(REQUESTS, st.data())
def test_a_change_of_any_one_part_is_another_key(name, one, data):
    other = dataclasses.replace(one, **{name: data.draw(FACTS[name])})
    assume(other != one)
    assert other.key.content != one.key.content
    assert other.key.target != one.key.target, "its objects are of no use"


@given(REQUESTS, WORDS, st.binary(max_size=8))
def test_files_change_the_content_and_not_the_target(one, path, data):
    assume(one.files.get(path) != data)
    other = dataclasses.replace(one, files={**one.files, path: data})
    assert one.key.content != other.key.content
    assert one.key.target == other.key.target


@given(REQUESTS)
def test_a_key_names_folders(one):
    for name in (one.key.target, one.key.content):
        assert Path(name).name == name
        assert not name.startswith(".")
        assert len(name) <= 100


def content(**changes):
    facts = {"commands": (), "files": {"a": b"bc"}, **changes}
    return dataclasses.replace(wanted(), **facts).key.content


def test_words_do_not_run_together():
    ways = {
        content(commands=(("ab", "c"),)),
        content(commands=(("a", "bc"),)),
        content(commands=(("ab",), ("c",))),
        content(files={"ab": b"c"}),
        content(archs=("9.0", "10.0")),
        content(archs=("9.0,10.0",)),
    }
    assert len(ways) == 6


def test_another_form_of_the_cache_has_other_keys(monkeypatch):
    first = wanted().key
    monkeypatch.setattr(keys, "SCHEMA", keys.SCHEMA + 1)
    assert wanted().key != first


def test_a_key_stays_what_it_is():
    """Else every user builds every library anew."""
    assert wanted().key == keys.CacheKey(
        "ext.scale-08651dfab2d71160", "15b483ecf53791141f8779639fae91ed"
    )


PLACES = st.from_regex(r"(/[a-z]{1,3}){1,3}", fullmatch=True).map(Path)


def command(source: Path, toolkit: Path) -> list[str]:
    return [
        f"{toolkit}/bin/nvcc",
        f"-I{source}/include",
        f"-ffile-prefix-map={source}=.",
        "-isystem",
        str(toolkit),
        f"-Wl,-rpath,{toolkit}/lib",
        f"{source}/a.cu",
        "-O3",
    ]


@given(PLACES, PLACES, PLACES, PLACES)
def test_commands_say_nothing_of_this_machine(source, toolkit, other_source, other_toolkit):
    for one, another in ((source, toolkit), (other_source, other_toolkit)):
        assume(one not in (another, *another.parents) and another not in one.parents)
    (here,) = strip_folders([command(source, toolkit)], {"source": source, "toolkit": toolkit})
    (there,) = strip_folders(
        [command(other_source, other_toolkit)],
        {"toolkit": other_toolkit, "source": other_source},
    )
    assert here == there
    assert here[0] == "\0toolkit\0/bin/nvcc"
    assert here[1] == "-I\0source\0/include"
    assert here[5] == "-Wl,-rpath,\0toolkit\0/lib"


def test_the_inner_of_two_places_counts():
    places = {"home": Path("/home/me"), "source": Path("/home/me/ext")}
    assert strip_folders([["/home/me/ext/a.cu", "/home/me/b"]], places) == (
        ("\0source\0/a.cu", "\0home\0/b"),
    )


def test_only_a_whole_folder_name_at_a_paths_beginning_is_one():
    words = ["/src2/a", "/other/src/a", "-I/other/src", "x/src", "/src\n"]
    assert strip_folders([words], {"source": Path("/src")}) == (tuple(words),)


@given(st.lists(WORDS, max_size=4), PLACES)
def test_no_word_is_lost(words, place):
    (found,) = strip_folders([words], {"source": place})
    assert tuple(word.replace("\0source\0", str(place)) for word in found) == tuple(words)


# Files are read once and laid out so that a build goes by what they hold, not by their times.


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "a.cu").write_bytes(b"a")
    (folder / "kernels" / "a.h").write_bytes(b"h")
    (folder / "notes.txt").write_bytes(b"no part of it")
    return folder


def test_what_globs_name_is_read_with_paths_below_the_folder(project):
    files = read_sources(project, ["kernels/*.cu", "**/*.h", "kernels/a.*"])
    assert files == {"kernels/a.cu": b"a", "kernels/a.h": b"h"}


def test_a_glob_that_names_no_file_is_a_mistake(project):
    with pytest.raises(UsageError, match=r"project: no file matches 'kernels/\*\.hip'"):
        read_sources(project, ["kernels/*.hip"])


def test_a_file_that_cannot_be_read_is_one_line(project, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(TorchwheelError, match=r"^\S*a\.cu: Permission denied$"):
        read_sources(project, ["kernels/*.cu"])


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


NAMES = st.sampled_from(["a", "a/b", "a/b/c", "b", "b/c", "d"])
TREES = st.dictionaries(NAMES, st.binary(max_size=3), max_size=4).filter(
    lambda files: not any(f"{one}/" in other for one in files for other in files)
)


@given(st.lists(TREES, min_size=1, max_size=4))
def test_after_any_content_only_the_last_is_there(tmp_path_factory, trees):
    folder = tmp_path_factory.mktemp("laid-out")
    for files in trees:
        write_sources(files, folder)
        assert tree(folder) == files


def test_a_file_that_is_the_same_keeps_its_time_and_an_older_version_gets_a_new_one(tmp_path):
    def times():
        return {name: (tmp_path / name).stat().st_mtime_ns for name in ("same", "changed")}

    write_sources({"same": b"1", "changed": b"2"}, tmp_path)
    for name in ("same", "changed"):
        os.utime(tmp_path / name, (1, 1))
    write_sources({"same": b"1", "changed": b"1"}, tmp_path)
    assert times()["same"] == 1_000_000_000
    assert times()["changed"] > 1_000_000_000


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    write_sources({"a": b"1"}, folder)
    assert tree(folder) == {"a": b"1"}
    assert (outside / "file").exists()
