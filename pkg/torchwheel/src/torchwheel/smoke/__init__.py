"""Smoke: install a finished wheel in a clean environment, run its tests, write a record."""

from pathlib import Path


def probe_source() -> str:
    """The text of probe.py, for `python -c`: its folder must not be on the path of the tests."""
    return Path(__file__).with_name("probe.py").read_text(encoding="utf-8")
