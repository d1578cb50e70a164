"""An entry's file is read as it was written, or is a ValueError."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.jit.entry import CacheEntry, dump_entry, load_entry

ENTRY = CacheEntry(
    "0f" * 16, "ext.scale", ("9.0", "12.0+PTX"), "CUDA 13.0", "2.13", "a.so", 3, "ab"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.builds(CacheEntry, file=st.just("a.so"), size=st.integers(0, 10**17)))
def test_what_was_written_is_read(entry):
    assert load_entry(dump_entry(entry).encode()) == entry


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_a_value_error(data):
    with pytest.raises(ValueError, match=r"."):
        load_entry(data)


@given(st.sampled_from([field.name for field in dataclasses.fields(CacheEntry)]), JSON)
def test_a_field_is_of_its_kind_or_a_value_error(name, value):
    malformed = {**json.loads(dump_entry(ENTRY)), name: value}
    try:
        entry = load_entry(json.dumps(malformed).encode())
    except ValueError:
        return
    again = json.loads(dump_entry(entry))
    assert again == malformed
    assert type(again[name]) is type(value)


@pytest.mark.parametrize(
    "file", ["", ".", "..", "/etc/passwd", "../a.so", "a/b.so", "a\0", "\ud800"]
)
def test_a_file_that_is_not_beside_it_is_a_value_error(file):
    text = dump_entry(dataclasses.replace(ENTRY, file=file))
    with pytest.raises(ValueError, match=r"file: expected (the name of a file|text), found"):
        load_entry(text.encode())


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(CacheEntry)])
def test_a_missing_field_is_a_value_error(name):
    malformed = json.loads(dump_entry(ENTRY))
    del malformed[name]
    with pytest.raises(ValueError, match=f'expected key "{name}", found none'):
        load_entry(json.dumps(malformed).encode())


def test_deep_nesting_is_a_value_error():
    with pytest.raises(ValueError, match=r"."):
        load_entry(b"[" * 60_000)
