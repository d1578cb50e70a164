"""From an extension to steps: sources, probes and commands."""

import dataclasses
import os
from pathlib import Path

import pytest

from programmaker import program
from targets import (
    CUDA_ATEN,
    CUDA_ATEN_OLD,
    CUDA_STABLE,
    EVERY,
    EXTENSION,
    PY311,
    ROCM_STABLE,
    sources,
)
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder import flavour, probes
from torchwheel_runtime.builder.extension import ArchFilter, Extension
from torchwheel_runtime.builder.flags import Flags, Probe
from torchwheel_runtime.builder.flavour import target_version
from torchwheel_runtime.builder.ninja import Step, render, wanted_files
from torchwheel_runtime.builder.probes import find_probes
from torchwheel_runtime.builder.recipe import INCLUDE, Recipe
from torchwheel_runtime.builder.sources import sources_of
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.errors import UsageError

MAPS = str(Path(flavour.__file__).parent)
every_target = pytest.mark.parametrize("target", EVERY.values(), ids=EVERY)


def recipe(target: Target) -> Recipe:
    return Recipe(EXTENSION, sources(target), target)


def rendered(made: Recipe) -> str:
    text = render(made.whole())
    return text.replace(MAPS, "/torchwheel").replace(str(INCLUDE), "/torchwheel_runtime/include")


def words(step: Step) -> list[str]:
    """A command without torchwheel's own headers, which every file may include."""
    return [word.replace(str(INCLUDE), "") for word in step.command]


@pytest.mark.parametrize("name", EVERY)
def test_the_rendered_plan_is_the_golden_one(name, golden):
    golden(f"{name}.ninja", rendered(recipe(EVERY[name])))


@every_target
def test_every_input_is_a_source_or_an_earlier_output(target):
    made: set[str] = set()
    plan = recipe(target).whole()
    for step in plan:
        assert all(name in made or name.startswith(("/project/", MAPS)) for name in step.inputs), (
            step
        )
        made.add(step.output)
    assert made >= set(wanted_files(plan))


@every_target
def test_kernels_never_see_torch(target):
    groups = recipe(target).groups
    for name in ("device", next(name for name in groups if name.startswith("host"))):
        for step in groups[name]:
            assert not any("/torch" in part or "/py" in part for part in words(step))


def test_variants_of_a_toolkit_share_what_has_the_same_name():
    """Objects are shared by the name of their group, so its commands must be the same."""
    found: dict[str, object] = {}
    for target in (
        CUDA_STABLE,
        CUDA_ATEN,
        CUDA_ATEN_OLD,
        dataclasses.replace(CUDA_ATEN, python=PY311),
        dataclasses.replace(CUDA_ATEN_OLD, python=PY311),
    ):
        for name, steps in recipe(target).groups.items():
            assert found.setdefault(name, steps) == steps
    assert set(found) == {
        "device",
        "host",
        "host-old-strings",
        "stable2.11",
        "aten2.11",
        "aten2.6",
        "python.cpython-311-x86_64-linux-gnu",
        "python.cpython-312-x86_64-linux-gnu",
        "python.cpython-311-x86_64-linux-gnu-old-strings",
        "python.cpython-312-x86_64-linux-gnu-old-strings",
    }


def test_what_meets_python_does_not_meet_torch():
    (step,) = recipe(CUDA_ATEN).groups["python.cpython-312-x86_64-linux-gnu"]
    assert not any("/torch" in part for part in words(step))


def test_the_old_strings_are_for_all_that_meets_torchs():
    groups = recipe(CUDA_ATEN_OLD).groups
    flag = "-D_GLIBCXX_USE_CXX11_ABI=0"
    assert {name for name, (step, *_) in groups.items() if flag in step.command} == {
        "host-old-strings",
        "aten2.6",
        "python.cpython-312-x86_64-linux-gnu-old-strings",
    }


@every_target
def test_no_folder_of_this_machine_reaches_the_binary(target):
    plan = recipe(target).whole()
    for step in plan:
        if step.label.startswith(("C++", "CUDA", "HIP")):
            assert "-ffile-prefix-map=/project=." in step.command
    assert "-Wl,--strip-all" in plan[-1].command


@pytest.mark.parametrize(("release", "small"), [("12.4", False), ("12.8", True), ("13.2", True)])
def test_device_code_is_compressed_where_the_compiler_can(release, small):
    toolkit = dataclasses.replace(CUDA_STABLE.toolkit, release=ToolkitRelease("cuda", release))
    made = recipe(dataclasses.replace(CUDA_STABLE, toolkit=toolkit)).whole()
    assert ("--compress-mode=size" in made[0].command) == small
    assert ("-Xfatbin=-compress-all" in made[0].command) != small


@pytest.mark.parametrize(
    ("floor", "number"), [("2.11", "0x020b000000000000"), ("2.9.1", "0x0209000000000000")]
)
def test_target_version(floor, number):
    assert target_version(floor) == number


def test_an_ordinary_extension_meets_torch_in_every_file(golden):
    extension = dataclasses.replace(EXTENSION, ordinary=True)
    files = dataclasses.replace(sources(CUDA_ATEN), python=(), included=())
    made = Recipe(extension, files, CUDA_ATEN)
    golden("cuda-ordinary.ninja", rendered(made))
    for step in made.whole():
        if step.label.startswith(("C++", "CUDA")):
            assert "/torch/torch/include" in step.command
            assert "-DTORCH_EXTENSION_NAME=_C" in step.command
            assert not any("-Werror" in part for part in step.command)


@pytest.mark.parametrize(
    ("abi", "release", "standard"),
    [
        ("aten", "2.13", "-std=c++17"),
        ("aten", "2.14", "-std=c++20"),
        # Nothing of the stable ABI's headers is newer than C++17.
        ("stable", "2.15", "-std=c++17"),
    ],
)
def test_files_are_compiled_with_the_cxx_of_torchs_headers(abi, release, standard):
    base = CUDA_ATEN if abi == "aten" else CUDA_STABLE
    target = dataclasses.replace(base, torch=dataclasses.replace(base.torch, release=release))
    steps = [one for one in recipe(target).whole() if one.label.startswith(("C++", "CUDA"))]
    assert {word for one in steps for word in one.command if word.startswith("-std=")} == {standard}


def test_variants_of_an_ordinary_extension_share_what_has_the_same_name():
    extension, found = dataclasses.replace(EXTENSION, ordinary=True), {}
    newer = dataclasses.replace(CUDA_ATEN.torch, release="2.12")
    for target in (
        CUDA_ATEN,
        dataclasses.replace(CUDA_ATEN, torch=newer),
        dataclasses.replace(CUDA_ATEN, python=PY311),
    ):
        files = dataclasses.replace(sources(target), python=(), included=())
        for name, steps in Recipe(extension, files, target).groups.items():
            assert found.setdefault(name, steps) == steps
    assert len(found) == 3 * 3


def test_an_ordinary_extension_names_its_module():
    extension = dataclasses.replace(EXTENSION, ordinary=True, module=None)
    with pytest.raises(UsageError, match="name its `module`"):
        Recipe(extension, sources(CUDA_ATEN), CUDA_ATEN)


def test_the_aten_flavour_for_rocm_is_refused_but_for_ordinary_extensions():
    target = dataclasses.replace(CUDA_ATEN, toolkit=ROCM_STABLE.toolkit)
    with pytest.raises(UsageError, match="aten flavour for ROCm: not provided; use the stable"):
        Recipe(EXTENSION, sources(target), target)
    extension = dataclasses.replace(EXTENSION, ordinary=True)
    assert Recipe(extension, sources(target), target).flavour.output.endswith(".so")


FILES = (
    *("a.cu", "a.cpp", "a_stable.cpp", "b c.cu", "b_stable.cpp", "b_aten.cpp"),
    *("host.cpp", "aten.cpp", "module.cpp"),
)


@pytest.fixture
def tree(tmp_path):
    for name in FILES:
        (tmp_path / name).touch()
    return tmp_path


def found(tree, target, only=None):
    return sources_of(EXTENSION, dataclasses.replace(target, source=tree), only)


BEFORE_STABLE = dataclasses.replace(CUDA_ATEN, python=None)
A = {"a.cu": (parse("9.0"), parse("12.0+PTX"))}
B = {"b c.cu": (parse("12.0+PTX"),)}
SOURCES = {
    "all of a stable library": (
        *(CUDA_STABLE, None),
        {"device": {**A, **B}, "host": ["host.cpp", "a.cpp"], "python": [], "included": []}
        | {"binding": ["a_stable.cpp", "b_stable.cpp"]},
    ),
    # The module is one unit with the operators' bindings.
    "aten": (
        *(CUDA_ATEN, None),
        {"binding": ["aten.cpp"], "included": ["b_aten.cpp"], "python": ["module.cpp"]},
    ),
    "one operator": (
        *(CUDA_STABLE, "a"),
        {"device": A, "host": ["host.cpp", "a.cpp"], "binding": ["a_stable.cpp"]},
    ),
    "one operator for an older torch": (BEFORE_STABLE, "b", {"binding": ["b_aten.cpp"]}),
}


@pytest.mark.parametrize(("target", "only", "expected"), SOURCES.values(), ids=SOURCES)
def test_the_sources_of_a_library(tree, target, only, expected):
    sources = found(tree, target, only)
    assert {name: getattr(sources, name) for name in expected} == expected


def test_an_operator_without_a_kernel_for_the_target_is_left_out(tree):
    hopper = dataclasses.replace(
        CUDA_STABLE, toolkit=dataclasses.replace(CUDA_STABLE.toolkit, archs=(parse("9.0"),))
    )
    assert list(found(tree, hopper).device) == ["a.cu"]
    assert found(tree, hopper).binding == ["a_stable.cpp"]
    with pytest.raises(UsageError, match=r"b: has no kernels for 9\.0"):
        found(tree, hopper, "b")


def test_operators_may_share_a_file(tree):
    a, b = EXTENSION.operators
    target = dataclasses.replace(CUDA_STABLE, source=tree)
    sharing = dataclasses.replace(b, device=(*b.device, *a.device), host=a.host)
    for operators in ((a, sharing), (sharing, a)):
        sources = sources_of(dataclasses.replace(EXTENSION, operators=operators), target)
        assert sources.device == {**A, **B}
        assert sources.host == ["host.cpp", "a.cpp"]
    alone = sources_of(dataclasses.replace(EXTENSION, operators=(sharing,)), target)
    assert list(alone.device.items()) == [*B.items(), ("a.cu", (parse("12.0+PTX"),))]


def test_processors_are_filtered_by_pattern(tree):
    files = found(tree, ROCM_STABLE).device
    assert files == {"a.cu": (parse("gfx90a"), parse("gfx942")), "b c.cu": (parse("gfx942"),)}
    assert ArchFilter().takes(parse("gfx1100"))
    assert not ArchFilter(cuda=(9, 0)).takes(parse("8.9"))


MISTAKES = {
    "no binding": (EXTENSION, BEFORE_STABLE, "a", "a: has no binding for the aten flavour"),
    "no file": (
        *(dataclasses.replace(EXTENSION, host=("none*.cpp",)), CUDA_STABLE, None),
        r"no file matches 'none\*\.cpp'",
    ),
    "no module": (
        *(dataclasses.replace(EXTENSION, module=None), CUDA_ATEN, None),
        "pkg: has no extension module for the aten flavour",
    ),
}


@pytest.mark.parametrize(("extension", "target", "only", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_an_extension_is_named(tree, extension, target, only, says):
    with pytest.raises(UsageError, match=says):
        sources_of(extension, dataclasses.replace(target, source=tree), only)


# Probes: the compiler is asked once, and its answer is kept for as long as it is the same one.


# Takes any flag but -mno; writes down each program and each command.
def compiler(path: Path, log: Path) -> Path:
    fails = 'case "$*" in *-mno*|*-lmissing*) exit 1;; esac'
    return program(path, f"cat probe.cpp >> {log}", f'echo "$@" >> {log}', fails)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def target(tmp_path, log, monkeypatch):
    """A target with a compiler of the test's own."""
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    return dataclasses.replace(CUDA_STABLE, cxx=str(compiler(tmp_path / "cxx", log)))


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


def test_nvcc_is_given_flags_for_the_host_compiler_as_a_shell_takes_them():
    """It calls that compiler by a shell, and puts no quotes around what it passes on."""
    target = dataclasses.replace(CUDA_STABLE, source=Path('/my "own" $project'))
    flags = {
        "C++": '-ffile-prefix-map=/my "own" $project=.',
        "CUDA": '"-ffile-prefix-map=/my \\"own\\" \\$project=."',
    }
    steps = [step for step in recipe(target).whole() if step.label.split()[0] in flags]
    assert {step.label.split()[0] for step in steps} == {*flags}
    for step in steps:
        assert flags[step.label.split()[0]] in step.command
