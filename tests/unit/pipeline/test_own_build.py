"""What surrounds an ordinary project's own build."""

import dataclasses
import json
import platform
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from programmaker import program
from torchwheel.compilers.compiler_cache import CacheUse
from torchwheel.pipeline import inside, own_build
from torchwheel.pipeline.own_build import (
    PLACES,
    BuildPlaces,
    OwnBuildPlan,
    dump_plan,
    make_compilers,
    require_pythons,
)
from torchwheel.smoke.smoke_record import ImportRecord, MachineRecord, TestReport, judge_smoke
from torchwheel.smoke.testing import EnvironmentTorch
from torchwheel.toolkit import torch_files
from torchwheel.toolkit.toolkit_home import HEADER_TIME
from torchwheel.toolkit.torch_files import TorchFile, torch_file
from torchwheel_runtime.builder.variables import sysroot_flags
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.toolkit.index import IndexedFile
from wheelmaker import make_wheel

PLAN = OwnBuildPlan(
    torch="torch===2.13.0 --hash=sha256:00",
    requires=("ninja",),
    settings={"a": "b"},
    archs="9.0",
    archs_by="environment",
    backend="cuda",
    toolkit=Path("/usr/local/cuda"),
    cxx=Path("/usr/bin/g++"),
    launcher=("sccache",),
    python="each",
    standard=17,
)
CLAIMS = Claims("cu130-torch2.13-cp312", "aten", "2.13", "cuda", "cu130", "13.0", ())


def test_a_plan_is_read_as_it_was_written(tmp_path):
    (tmp_path / "plan").write_text(dump_plan(PLAN))
    assert read_json(tmp_path / "plan", OwnBuildPlan) == PLAN


@pytest.mark.parametrize(
    ("serves", "tags", "do"),
    [
        ("each", "cp312-cp312", None),
        ("abi3", "cp39-abi3", None),
        ("any", "py3-none", None),
        ("each", "cp39-abi3", "say abis.ordinary.python: abi3"),
        ("abi3", "cp312-cp312", "say abis.ordinary.python: each"),
        ("each", "py3-none", "say abis.ordinary.python: any"),
        ("any", "pp310-pypy310_pp73", "no wheel is tagged so"),
    ],
)
def test_a_wheel_for_other_pythons_is_refused(serves, tags, do):
    wheel = f"conv-1.0-{tags}-linux_x86_64.whl"
    if do is None:
        require_pythons(wheel, serves)
    else:
        with pytest.raises(TorchwheelError, match=rf"is tagged {tags}; .*{serves} .*; {do}$"):
            require_pythons(wheel, serves)


def test_a_build_that_compiled_nothing_is_refused(tmp_path):
    # Without an extension setuptools tags it for any Python; that is not the fault to name.
    plan = dataclasses.replace(PLAN, why_empty="no .cu was compiled: setup.py:4 asks for a GPU")
    (tmp_path / inside.PLAN).write_text(dump_plan(plan))
    torch = EnvironmentTorch("2.13.0", "13.0", None, tmp_path, loaded=("libcudart.so.13",))
    facts = {**dataclasses.asdict(torch), "folder": str(tmp_path)}
    (tmp_path / own_build.TORCH_FACTS).write_text(json.dumps(facts))
    wheel = make_wheel(tmp_path, claims=None)
    with pytest.raises(TorchwheelError, match=r"no library in it: no \.cu was compiled: setup"):
        own_build.claims_of_built(wheel, CLAIMS, tmp_path)


def test_a_gpu_is_pretended_before_setup_py_runs(tmp_path, monkeypatch):
    """A setup.py that raises without a GPU is run for its requirements already."""
    (tmp_path / inside.PLAN).write_text(dump_plan(PLAN))
    done = []

    def python(arguments, doing):
        done.append(doing)
        return "[]\n"

    monkeypatch.setattr(own_build, "_install", lambda *_: None)
    monkeypatch.setattr(own_build, "_declared_requirements", lambda _: ())
    monkeypatch.setattr(own_build, "make_compilers", lambda *_: None)
    monkeypatch.setattr(own_build, "_python", python)
    monkeypatch.setattr(own_build.pretended_gpu, "install", lambda _: done.append("a GPU"))
    own_build.prepare(tmp_path, tmp_path)
    assert done == ["importing torch", "a GPU", "the project's build backend"]


STATISTICS = {
    "cache_hits": {"counts": {"CUDA": 3, "CUBIN": 4}},
    "cache_misses": {"counts": {"C/C++": 2}},
    "cache_writes": 2,
    "cache_write_errors": 0,
}


def test_what_the_compiler_cache_had_is_counted_in_the_container(tmp_path, monkeypatch):
    program(tmp_path / "bin" / "sccache", f"echo '{json.dumps({'stats': STATISTICS})}'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    (tmp_path / inside.PLAN).write_text(dump_plan(dataclasses.replace(PLAN, launcher=())))
    own_build.count_cache_use(tmp_path)
    assert inside.read_cache_use(tmp_path) is None
    (tmp_path / inside.PLAN).write_text(dump_plan(PLAN))
    own_build.count_cache_use(tmp_path)
    assert inside.read_cache_use(tmp_path) == CacheUse(hits=3, misses=2)


@pytest.fixture
def index(monkeypatch):
    """`index.torch`: the version that an index has of a requirement; `index.asked`: what was."""
    found = SimpleNamespace(asked=[], torch=lambda requirement: "2.12.1")

    def find(requirements, platform, python):
        found.asked.append((*requirements, platform, python))
        version = found.torch(requirements[0])
        return [IndexedFile("torch", version, "https://h.test/t.whl", "ab" * 32)]

    monkeypatch.setattr(torch_files, "find_files", find)
    return found


def torch_of(tmp_path, minor, python="3.12", **more):
    return torch_file(minor, python, "linux_x86_64", tmp_path, Quiet(), **more)


def test_a_torch_that_is_not_locked_is_looked_up_once(tmp_path, index):
    for _ in range(2):
        file = torch_of(tmp_path, "2.12")
        assert file == TorchFile("2.12.1", "ab" * 32)
    assert file.requirement == f"torch===2.12.1 --hash=sha256:{'ab' * 32}"
    assert index.asked == [("torch==2.12.*", "linux_x86_64", "3.12")]


def test_a_cpu_torch_of_another_index_is_not_the_one(tmp_path, index):
    index.torch = {"torch==2.12.*": "2.12.1+cpu", "torch===2.12.1": "2.12.1"}.get
    assert torch_of(tmp_path, "2.12").version == "2.12.1"


def test_a_locked_torch_is_the_one_of_the_lock(tmp_path, index):
    index.torch = lambda _: "2.11.0"
    with pytest.raises(TorchwheelError, match=r"expected torch 2\.11\.0 with sha256 .* the lock"):
        torch_of(tmp_path, "2.11")
    assert index.asked == [("torch==2.11.0", "linux_x86_64", "3.12")]
    # The lock has the file of one Python.
    assert torch_of(tmp_path, "2.11", "3.11").version == "2.11.0"


def test_a_torch_for_rocm_is_of_that_release(tmp_path, index):
    index.torch = lambda requirement: requirement.partition("===")[2] or "2.13.0"
    for _ in range(2):
        assert torch_of(tmp_path, "2.13", rocm="7.2").version == "2.13.0+rocm7.2"
    assert [asked for asked, *_ in index.asked] == ["torch==2.13.*", "torch===2.13.0+rocm7.2"]
    assert torch_of(tmp_path, "2.13").version == "2.13.0"


def test_an_index_without_a_torch_for_rocm_is_said_so(tmp_path, index):
    def torch(requirement):
        if requirement == "torch==2.13.*":
            return "2.13.0"
        raise TorchwheelError("looking up: pip's words")

    index.torch = torch
    says = (
        r"^expected torch===2\.13\.0\+rocm7\.2 for Python 3\.12 on an index, found none; .* "
        r"PIP_EXTRA_INDEX_URL \(looking up: pip's words\)$"
    )
    with pytest.raises(TorchwheelError, match=says):
        torch_of(tmp_path, "2.13", rocm="7.2")


def test_the_compilers_of_rocm_take_the_older_system(tmp_path):
    rocm, older = tmp_path / "rocm", tmp_path / "sysroot"
    for name in ("bin/hipcc", "bin/hipconfig", "llvm/bin/clang++"):
        program(rocm / name, f'echo {name} "$@"')
    for folder in ("include/hip", "lib"):
        (rocm / folder).mkdir(parents=True)
    gcc = older / "usr" / "lib" / "gcc" / f"{platform.machine()}-linux-gnu" / "10"
    gcc.mkdir(parents=True)
    (gcc / "libstdc++.a").touch()
    plan = dataclasses.replace(
        PLAN,
        backend="rocm",
        toolkit=rocm,
        cxx=rocm / "llvm/bin/clang++",
        archs="gfx90a;gfx1100",
        launcher=(),
    )
    made = tmp_path / "made"
    places = BuildPlaces(tmp_path / "site", made / "toolkit_home", made / "cxx", made / "ninja")
    make_compilers(plan, places, sysroot_flags(older, platform.machine()))

    def said(name, *arguments):
        command = [made / name, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    flags = f"--sysroot={older} --gcc-install-dir={gcc}"
    assert said("cxx", "-c", "a.cpp").stdout == f"llvm/bin/clang++ {flags} -c a.cpp\n"
    archs = ("--offload-arch=gfx90a", "--offload-arch=gfx1100")
    right = said("toolkit_home/bin/hipcc", "-c", "a.hip", *archs)
    assert right.stdout == f"bin/hipcc {flags} -c a.hip {' '.join(archs)}\n"
    # Both have the C++ that torch's headers need.
    for name in ("cxx", "toolkit_home/bin/hipcc"):
        raised = said(name, "-c", "a", "-I/torch/include", "-std=c++14").stdout
        assert raised.endswith(f"{flags} -c a -I/torch/include -std=c++17\n")
    wrong = said("toolkit_home/bin/hipcc", "-c", "a.hip", "--offload-arch=gfx942")
    assert wrong.returncode == 1
    assert (
        "the project hard-codes the archs gfx942; expected those of PYTORCH_ROCM_ARCH, "
        'gfx90a;gfx1100; pass --archs "gfx942"' in wrong.stderr
    )
    assert said("toolkit_home/bin/hipconfig", "--version").stdout == "bin/hipconfig --version\n"
    assert (made / "toolkit_home" / "include" / "hip").is_symlink()


MACHINE = MachineRecord("3.12.1", "linux_x86_64", "2.31", "2.13.0", "13.0", None, None)


def test_a_wheel_may_be_imported_alone():
    good, bad = ImportRecord("conv", "conv/__init__.py"), ImportRecord("conv", None, "ImportError")
    said = judge_smoke(MACHINE, (good,), TestReport(), 0, tested=False)
    assert said == ("imported, not run on a GPU", None)
    said = judge_smoke(MACHINE, (good, bad), TestReport(), 0, tested=False)
    assert said == ("failed", "import conv: ImportError")
    assert judge_smoke(MACHINE, (), TestReport(), 0, tested=False)[0] == "failed"
    assert judge_smoke(MACHINE, (good,), TestReport(), 1, tested=False)[0] == "failed"
    # With a suite, a run without a test fails as before.
    assert judge_smoke(MACHINE, (good,), TestReport(), 0)[0] == "failed"


def test_torchs_headers_have_one_time_however_they_are_linked(tmp_path, monkeypatch):
    """uv links each Python's torch from its cache, with the times of its own download."""
    cached, site = tmp_path / "cache", tmp_path / "site"
    for name in ("a.h", "c10/b.h"):
        (cached / name).parent.mkdir(parents=True, exist_ok=True)
        (cached / name).write_text("#pragma once\n")
        linked = site / "torch" / "include" / name
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.symlink_to(cached / name)
    (tmp_path / "torch.txt").write_text("torch===2.13.0")
    program(tmp_path / "bin" / "uv", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setattr(own_build, "PLACES", dataclasses.replace(PLACES, environment=site))
    own_build._install([], tmp_path / "torch.txt")
    times = [path.stat().st_mtime for path in site.rglob("*.h")]
    assert times == [HEADER_TIME] * 2
    before = [path.stat().st_ctime_ns for path in site.rglob("*.h")]
    own_build._install([], tmp_path / "torch.txt")
    assert [path.stat().st_ctime_ns for path in site.rglob("*.h")] == before
