"""The loader of our own JSON: types, keys, depth, size, and messages of one line."""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchwheel
import torchwheel_runtime
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.json_files import MAX_BYTES, FileName, last_line, parse_json, read_json


@dataclasses.dataclass(frozen=True)
class Inner:
    name: str
    size: int = 0


@dataclasses.dataclass(frozen=True)
class Outer:
    file: FileName
    kind: Literal["a", "b"]
    folder: Path
    parts: tuple[Inner, ...]
    frame: tuple[str, int | None]
    seconds: Mapping[str, float]
    names: list[str]
    why: str | None
    good: bool
    inner: Inner | None = None


GOOD: dict[str, Any] = {
    "file": "a.whl",
    "kind": "a",
    "folder": "/x",
    "parts": [{"name": "n", "size": 3}],
    "frame": ["f", None],
    "seconds": {"build": 1, "test": 2.5},
    "names": ["é"],
    "why": None,
    "good": True,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def reason(content: str | bytes, kind: type = Outer, **options: Any) -> str:
    with pytest.raises(MalformedError) as caught:
        parse_json(content, kind, "x.json", do="build again", **options)
    text = str(caught.value)
    assert text.startswith("x.json: ")
    assert text.endswith("; build again")
    assert text.isprintable()
    assert len(text) < 1000
    return caught.value.reason


WHOLE = "size: expected a whole number"


def test_a_good_file_is_read_as_its_types_say():
    assert parse_json(json.dumps(GOOD), Outer, "x") == Outer(
        file="a.whl",
        kind="a",
        folder=Path("/x"),
        parts=(Inner("n", 3),),
        frame=("f", None),
        seconds={"build": 1.0, "test": 2.5},
        names=["é"],
        why=None,
        good=True,
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"file": 5}, "file: expected text, found 5"),
        ({"file": ".."}, 'file: expected the name of a file, found ".."'),
        ({"file": "a/b"}, 'file: expected the name of a file, found "a/b"'),
        ({"file": "a\0"}, 'file: expected the name of a file, found "a\\u0000"'),
        ({"file": "\u202ea"}, 'file: expected the name of a file, found "\\u202ea"'),
        ({"file": "\ud800"}, 'file: expected text, found half a character in "\\ud800"'),
        ({"kind": "c"}, 'kind: expected "a" or "b", found "c"'),
        ({"kind": ["a"]}, 'kind: expected "a" or "b", found a list'),
        ({"folder": "\0"}, 'folder: expected a path, found "\\u0000"'),
        ({"folder": ""}, 'folder: expected a path, found ""'),
        ({"parts": {}}, "parts: expected a list, found an object"),
        ({"parts": [5]}, "parts[0]: expected an object, found 5"),
        ({"parts": [{}]}, 'parts[0]: expected key "name", found none'),
        ({"parts": [{"name": "n", "size": True}]}, f"parts[0].{WHOLE}, found true"),
        ({"parts": [{"name": "n", "size": 1.5}]}, f"parts[0].{WHOLE}, found 1.5"),
        ({"frame": ["f"]}, "frame: expected a list of 2, found 1"),
        ({"seconds": {"a": "1"}}, 'seconds.a: expected a number, found "1"'),
        ({"seconds": {"\n": None}}, 'seconds["\\n"]: expected a number, found null'),
        ({"names": "é"}, 'names: expected a list, found "é"'),
        ({"good": 1}, "good: expected true or false, found 1"),
        ({"x": 1}, 'expected no key "x", found one'),
    ],
)
def test_a_field_of_another_type(changes, says):
    assert reason(json.dumps({**GOOD, **changes})) == says


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "expected JSON, found at line 1, column 1: Expecting value"),
        ("{", "expected JSON, found at line 1, column 2: Expecting property name"),
        (b"\xff", "expected UTF-8, found byte 0xff at 0"),
        (b"\xef\xbb\xbf{}", "expected JSON, found at line 1, column 1"),
        ("[]", "expected an object, found a list"),
        ("NaN", 'expected a number, found "NaN"'),
        ("-Infinity", 'expected a number, found "-Infinity"'),
        ("1e999", 'expected a number, found "1e999"'),
        ("1" * 5000, "expected at most 18 digits, found 5000"),
        ("{" + ",".join(f'"{n}":0' for n in [*range(50_000), 7]) + "}", "expected each key once"),
        ('{"a": 1, "a": 2}', 'expected each key once, found "a" twice'),
        ("[" * 200_000, "expected at most 32 levels, found more"),
        ('{"a":' * 200_000, "expected at most 32 levels, found more"),
        (b" " * (MAX_BYTES + 1), "expected at most 8 MiB, found more"),
    ],
)
def test_a_file_that_is_no_such_json(content, says):
    assert reason(content).startswith(says)


def test_any_json_is_held_to_the_depth_and_to_whole_characters():
    assert parse_json("[" * 30 + "]" * 30, object, "x")
    assert reason("[" * 40 + "]" * 40, object) == "[0]: expected at most 32 levels, found more"
    assert "half a character" in reason('{"a": ["\\ud800"]}', object)


def test_the_schema_is_compared_and_taken_out():
    assert parse_json('{"schema": 3, "name": "n"}', Inner, "x", schema=3) == Inner("n")
    assert reason('{"schema": 2}', Inner, schema=3) == "expected schema 3, found 2"
    assert reason('{"schema": true}', Inner, schema=1) == "expected schema 1, found true"
    assert reason("{}", Inner, schema=3) == "expected schema 3, found none"
    assert reason("[]", Inner, schema=3) == "expected an object, found a list"


def test_a_field_with_a_default_may_be_missing_unless_all_must_be_there():
    assert parse_json('{"name": "n"}', Inner, "x") == Inner("n")
    assert reason('{"name": "n"}', Inner, complete=True) == 'expected key "size", found none'


def test_other_keys_are_allowed_where_the_file_is_another_programs():
    assert parse_json('{"name": "n", "x": {}}', Inner, "x", others=True) == Inner("n")


def test_a_type_that_is_written_as_text():
    class Release:
        def __init__(self, text: str) -> None:
            if not text.isdigit():
                raise ValueError(f"{text!r} is no release")
            self.number = int(text)

    kind, readers = tuple[Release, ...], {Release: Release}
    read = parse_json('["5"]', kind, "x", readers=readers)
    assert [release.number for release in read] == [5]
    assert reason('["a"]', kind, readers=readers) == "[0]: 'a' is no release"
    assert reason("[5]", kind, readers=readers) == "[0]: expected text, found 5"


def test_equal_values_of_a_shared_type_are_one_object():
    def shared(text):
        return parse_json(text, tuple[Inner, ...], "x", shared=frozenset({Inner}))

    one, other, same = shared('[{"name": "a"}, {"name": "b"}, {"name": "a"}]')
    assert (one, other) == (Inner("a"), Inner("b"))
    assert one is same
    (later,) = shared('[{"name": "a"}]')
    assert later is one, "in another file"
    for value in ("1.0", "true"):  # in Python they are equal to 1
        with pytest.raises(MalformedError, match=rf"\[1\]\.size: .*found {value}"):
            shared(f'[{{"name": "a", "size": 1}}, {{"name": "a", "size": {value}}}]')
    for depth in range(900, 1000, 7):
        with pytest.raises(MalformedError):
            shared(f'[{{"name": {"[" * depth}{"]" * depth}}}]')


@given(JSON.map(json.dumps) | st.text() | st.binary())
def test_anything_is_read_or_malformed(content):
    for kind in (Outer, object, dict[str, int], tuple[Inner, ...]):
        with contextlib.suppress(MalformedError):
            parse_json(content, kind, "x")


@given(st.sampled_from(sorted(GOOD)), JSON)
def test_a_field_is_of_its_type_or_malformed(name, value):
    content = json.dumps({**GOOD, name: value})
    try:
        read = parse_json(content, Outer, "x")
    except MalformedError:
        return
    again = json.loads(json.dumps(dataclasses.asdict(read), default=str))
    assert again[name] == value or name == "parts"


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_not_waited_for(tmp_path, make):
    make(tmp_path / "x")
    with pytest.raises((MalformedError, IsADirectoryError)):
        read_json(tmp_path / "x", object)


def test_an_endless_device_is_not_read():
    with pytest.raises(MalformedError, match="/dev/zero: expected a file, found a folder or a dev"):
        read_json(Path("/dev/zero"), object)


@pytest.mark.parametrize(("output", "last"), [("", ""), ("a\nb\n", "b"), ("\n\n", ""), ("a", "a")])
def test_the_last_line(output, last):
    assert last_line(output) == last


def test_no_other_module_reads_json():
    readers = {
        str(path.relative_to(Path(half.__path__[0]).parent))
        for half in (torchwheel, torchwheel_runtime)
        for path in Path(half.__path__[0]).rglob("*.py")
        if re.search(r"\bjson\.loads?\(|\bJSONDecoder\(", path.read_text())
    }
    # probe.py runs where there is no torchwheel, and reads what a fork of itself has written.
    assert readers == {"torchwheel_runtime/json_files.py", "torchwheel/smoke/probe.py"}
