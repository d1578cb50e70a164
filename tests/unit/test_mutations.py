"""Every place that `nox -s mutate` breaks is still there, in one file, once."""

from mutate import ROOT, load, misplaced


def test_every_guarded_place_is_found():
    assert [reason for mutation in load() if (reason := misplaced(mutation, ROOT))] == []
