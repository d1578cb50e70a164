"""Probes: the compiler is asked once, and its answer is kept for as long as it is the same one."""

import dataclasses
import os
import stat
from pathlib import Path

import pytest
from targets import CUDA_STABLE, EXTENSION

from torchwheel.builder import probes
from torchwheel.builder.extension import Extension
from torchwheel.builder.flags import Flags, Probe
from torchwheel.builder.probes import find_probes
from torchwheel.builder.target import Target
from torchwheel.errors import UsageError

# Takes any flag but -mno; writes down each program and each command.
COMPILER = """#!/bin/sh
cat probe.cpp >> {log}
echo "$@" >> {log}
case "$*" in *-mno*|*-lmissing*) exit 1;; esac
exit 0
"""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def target(tmp_path, log, monkeypatch):
    """A target with a compiler of the test's own."""
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    return dataclasses.replace(CUDA_STABLE, cxx=str(compiler(tmp_path / "cxx", log)))


def compiler(path: Path, log: Path) -> Path:
    path.write_text(COMPILER.format(log=log))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def extension(*asked: Probe) -> Extension:
    return dataclasses.replace(EXTENSION, probes=asked)


def times_asked(log: Path) -> int:
    return log.read_text().count("int main()") if log.exists() else 0


AIO = Probe("aio", Flags(cxx=("-DAIO",), libraries=("aio",)), function="io_submit")
NO = Probe("no", Flags(cxx=("-mno",)))


def test_the_compiler_is_asked_once(target, log):
    for _ in range(3):
        assert find_probes(extension(AIO, NO), target) == {"aio"}
    assert times_asked(log) == 2
    text = log.read_text()
    assert 'extern "C" char io_submit();' in text
    assert "-std=c++17 -DAIO -x c++ probe.cpp -x none -o probe" in text
    assert "-laio" in text


def test_another_compiler_is_asked_again(target, tmp_path, log):
    find_probes(extension(AIO), target)
    other = dataclasses.replace(target, cxx=str(compiler(tmp_path / "other", log)))
    find_probes(extension(AIO), other)
    assert times_asked(log) == 2
    os.utime(target.cxx, (1, 1))  # an upgrade under the same name
    find_probes(extension(AIO), target)
    assert times_asked(log) == 3
    find_probes(extension(dataclasses.replace(AIO, function="io_pgetevents")), target)
    assert times_asked(log) == 4


def test_a_no_that_a_new_library_could_change_is_not_kept(target, log):
    missing = Probe("missing", Flags(libraries=("missing",)))
    for _ in range(2):
        assert find_probes(extension(missing), target) == frozenset()
    assert times_asked(log) == 2


def test_a_cache_that_cannot_be_used_stops_nobody(target, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "file"))
    assert find_probes(extension(AIO, NO), target) == {"aio"}


def test_a_planted_answer_is_asked_again(target, log, tmp_path):
    find_probes(extension(NO), target)
    (answer,) = (tmp_path / "cache" / "probes").glob("*.json")
    answer.write_text('"yes"')
    assert find_probes(extension(NO), target) == frozenset()
    answer.write_text("true")
    answer.chmod(0o666)
    assert find_probes(extension(NO), target) == frozenset()
    assert times_asked(log) == 3


def test_flags_for_a_cpu_are_for_the_machine_that_has_it(target: Target):
    avx = extension(Probe("avx", Flags(cxx=("-mavx2",)), cpu=("avx2", "fma")))
    assert find_probes(avx, target, frozenset({"avx2", "fma", "sse"})) == {"avx"}
    assert find_probes(avx, target, frozenset({"avx2"})) == frozenset()
    assert find_probes(avx, target) == frozenset()  # a wheel


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("processor : 0\nflags\t\t: fpu avx2 fma\n\nflags : other\n", {"fpu", "avx2", "fma"}),
        ("Features\t: fp asimd\n", {"fp", "asimd"}),
        ("flags :\n", set()),
        ("", set()),
    ],
)
def test_what_the_cpu_has_is_read(tmp_path, monkeypatch, text, features):
    monkeypatch.setattr(probes, "_CPU_FACTS", tmp_path / "cpuinfo")
    assert probes.cpu_features() == frozenset()
    (tmp_path / "cpuinfo").write_text(text)
    assert probes.cpu_features() == features


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((AIO, AIO), "Extension.probes: expected names that differ, found 'aio' twice; rename one"),
        (
            (Probe("x", Flags(), function="f(); int g"),),
            "Probe('x').function: expected the name of a C function, found 'f(); int g'; write "
            'e.g. "io_submit"',
        ),
    ],
)
def test_a_malformed_probe_is_named(target, log, asked, says):
    with pytest.raises(UsageError) as error:
        find_probes(extension(*asked), target)
    assert str(error.value) == says


def test_a_compiler_that_is_not_there_is_named(target):
    gone = dataclasses.replace(target, cxx="/nowhere/g++")
    with pytest.raises(UsageError, match=r"/nowhere/g\+\+: expected a C\+\+ compiler, found none"):
        find_probes(extension(AIO), gone)
