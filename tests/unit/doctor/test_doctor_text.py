"""What the doctor prints: byte for byte, never wider than 80 columns, the verdict first."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from doctor_cases import (
    CPU_TORCH,
    H200,
    MACHINE,
    SITE,
    TOOLKIT,
    case,
    links,
    native,
    package,
    status,
    waiting,
)
from hypothesis import given
from hypothesis import strategies as st

import wheelmaker
from torchwheel_runtime.arch.devices import Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import LibraryFlags
from torchwheel_runtime.doctor import report as text_
from torchwheel_runtime.doctor.case import CacheState, Case, Report, Verdict
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.report import (
    package_text,
    report_json,
    report_text,
    row,
    unwrapped_row,
    verdict_text,
)
from torchwheel_runtime.doctor.verdict import judge, judge_machine
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.jit.key import CacheKey
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit
from torchwheel_runtime.runtime.status import ExtensionStatus, OperatorStatus, Refusal
from torchwheel_runtime.validate.findings import Finding

CACHE = CacheState(
    Path("/home/me/.cache/torchwheel"),
    {"toolkits": 845 << 20, "jit": 212 << 10},
    corrupt={CacheKey("demo.scale-0", ""): "demo.scale-0/a.so: changed"},
)
GONE = "_ZN3c104goneEv"


def well() -> Case:
    code = (
        GpuCode("sass", parse("8.0"), ("k",)),
        GpuCode("sass", parse("9.0"), ("k",)),
        GpuCode("ptx", parse("9.0")),
    )
    rest = native(
        "demo/_rest.so", code=(), links=dataclasses.replace(links(), torch_symbols=frozenset())
    )
    made = package(natives=(native(code=code), rest), status=status("prebuilt"))
    others = (
        InstalledToolkit(
            "cuda", Path("/home/me/.cache/torchwheel/t"), "13.2", "torchwheel's cache"
        ),
    )
    return case(made, cache=CACHE, toolkits=(TOOLKIT, *others))


def broken() -> Case:
    """A package whose library was built for CUDA and another torch, in a torch for CPUs."""
    words = ("OSError: Could not load this library: /a/very/long/path" * 3, f"OSError: {GONE}")
    library = native(
        loaded=False,
        needed=("libcudart.so.12",),
        links=links(
            absent={"libcudart.so.12": "_C.so"},
            undefined=frozenset({GONE, "_ZN3c105otherEv", "_ZN3c105thirdEv"}),
            outdated=((Path("/lib/libstdc++.so.6"), "GLIBCXX_3.4.99"),),
        ),
    )
    malformed = native(
        "demo/malformed.so", loaded=False, links=None, problem="demo/malformed.so: not an ELF file"
    )
    failed = ImportResult(
        "raised", words, file=SITE / "demo/__init__.py", where="demo/__init__.py:3"
    )
    made = package(natives=(library, malformed), imported=failed)
    bad = InstalledToolkit("rocm", Path("/opt/rocm"), "", "hipcc on the PATH", "it does not start")
    return case(
        made,
        cache=dataclasses.replace(CACHE, problem="/home/me cannot be written"),
        torch=CPU_TORCH,
        driver=None,
        driver_problem=Absent("no NVIDIA driver"),
        gpus=(),
        gpus_problem=Absent("no NVIDIA driver"),
        host=None,
        host_problem=Absent("no C++ compiler"),
        toolkits=(bad,),
    )


def to_be_built() -> Case:
    refused = Refusal("prebuilt", "none in this installation", fault=False)
    return case(waiting(status=status("waiting", refused)), cache=CACHE, gpus=(H200, H200))


B200 = Gpu(1, "NVIDIA B200", parse("10.0"))


def universal() -> Case:
    """A universal wheel on two kinds of GPU: one has prebuilt kernels, the other waits."""
    library = SITE / "demo/_lib/kernels/cu130.so"
    ways = [
        OperatorStatus(name, (f"demo::{name}",), "prebuilt", library) for name in ("add", "scale")
    ]
    found = ExtensionStatus(
        *("demo", "auto", tuple(ways)),
        choices=(
            "front end: stable; torch2.6, torch2.7, torch2.8: for another torch",
            "GPU 0 (NVIDIA H200, 9.0): cu130; cu124: cu130 fits better; rocm6.4, rocm7.2: expected "
            "a torch built for ROCm, which demo has its kernels for, found torch 2.11.0+cu130, "
            "built with CUDA 13.0",
            "GPU 1 (NVIDIA B200, 10.0): to be built at its first call on a GPU; cu124, cu130: "
            "expected code for GPU 1 (NVIDIA B200, 10.0), found 7.5 8.0 9.0",
        ),
        waiting_gpus=(1,),
    )
    claims = wheelmaker.universal(("cuda 13.0", "cuda 12.4", "rocm 6.4"), ("2.6", "2.7", "2.11"))
    parts = tuple(
        native(part.file, archs="9.0" * (part.backend == "cuda"), loaded=True)
        if part.name in ("stable", "cu130")
        else native(part.file, loaded=False, links=links(undefined=frozenset({GONE})))
        for part in claims.parts
    )
    info = dataclasses.replace(package().info, claims=claims)
    made = package(info=info, natives=parts, status=found)
    return case(made, cache=CacheState(CACHE.folder, CACHE.sizes), gpus=(H200, B200))


CASES = {"well": well, "broken": broken, "to_be_built": to_be_built, "universal": universal}


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch):
    monkeypatch.setattr(text_.sys, "executable", "/venv/bin/python")
    monkeypatch.setenv("HOME", "/home/me")


def report(made: Case) -> Report:
    variables = {"TORCHWHEEL_MODE": "auto", "CUDA_HOME": "/opt/cuda-13.0"}
    return Report(made.machine, variables, made.cache, (made.package,), (judge(made),))


@pytest.mark.parametrize("name", CASES)
def test_the_text(name, golden):
    made = report(CASES[name]())
    text, details = report_text(made), report_text(made, verbose=True)
    lines = text.splitlines()
    assert max(map(len, (*lines, *details.splitlines()))) <= 80
    assert lines[0].startswith("fine " if made.ok else "wrong ")
    assert set(lines[:-1]) <= set(details.splitlines())
    assert details.startswith(verdict_text(*made.verdicts))
    golden(f"{name}.txt", f"{text}\n\n$ --verbose\n{details}\n")


def test_what_is_well_fits_a_screen():
    """Eight GPUs, a universal wheel with a front end for each torch, and a variable."""
    made = universal().package
    assert made.status is not None
    front_end, of_gpu, _ = made.status.choices
    of_gpus = (of_gpu.replace("GPU 0", f"GPU {index}") for index in range(8))
    found = dataclasses.replace(made.status, choices=(front_end, *of_gpus), waiting_gpus=())
    well = dataclasses.replace(made, imported=dataclasses.replace(made.imported, status=found))
    gpus = tuple(dataclasses.replace(H200, index=index) for index in range(8))
    text = report_text(report(case(well, gpus=gpus)))
    assert text.startswith("fine ")
    assert len(text.splitlines()) <= 24
    assert re.findall(r"GPU \d", text) == ["GPU 0"]
    assert "; the same on 7 more" in " ".join(text.split())
    assert "GPU        0, 1, 2, 3, 4, 5, 6, 7: NVIDIA H200, 9.0\n" in text


def test_without_a_gpu_the_text_and_the_status_say_what_the_verdict_says():
    made = case(package(status=status("prebuilt")), gpus=(), torch=CPU_TORCH, driver=None)
    text = report_text(report(made))
    assert "it runs on plain PyTorch, as there is no GPU here" in text
    assert "  on a GPU scale: prebuilt, _C.so\n" in text
    assert "runs on  " not in text


@pytest.mark.parametrize("name", CASES)
def test_the_json(name, golden):
    text = report_json(report(CASES[name]()))
    assert json.loads(text)["schema"] == 1
    golden(f"{name}.json", text + "\n")


def test_a_machine_alone():
    machine = case().machine
    text = report_text(Report(machine, {}, CACHE, (), (judge_machine(machine),)))
    assert text.splitlines()[0].startswith("fine       no package that torchwheel made is here")
    assert "\nvariables" not in text


def test_every_verdict_comes_first():
    made = [well(), broken()]
    verdicts = tuple(map(judge, made))
    whole = Report(made[0].machine, {}, CACHE, tuple(c.package for c in made), verdicts)
    lines = [line for line in report_text(whole).splitlines() if line.startswith(("fine", "wrong"))]
    assert [line.split()[0] for line in lines] == ["fine", "wrong"]
    assert report_text(whole).startswith("\n".join(map(verdict_text, verdicts)))
    assert not whole.ok


def test_each_fix_stands_once_below_the_findings_that_it_fixes():
    findings = (Finding("a", "1", fix="x"), Finding("b", "2", fix="y"), Finding("c", "3", fix="x"))
    lines = [line.split() for line in verdict_text(Verdict(findings, "demo: 1")).splitlines()]
    assert lines == [
        *(["wrong", "demo:", "1"], ["also", "3"], ["to", "fix", "it", "x"]),
        *(["also", "2"], ["to", "fix", "it", "y"]),
    ]


def test_a_name_that_is_no_text_is_printed_all_the_same():
    made = case(package(root=Path("/venv/\udcff\x1b[2J")))
    assert "/venv/\\udcff\\u001b[2J" in report_text(report(made), verbose=True)
    json.loads(report_json(report(made)))


@given(st.text(max_size=300) | st.text(alphabet="/ax ", min_size=100))
def test_a_row_is_never_too_wide(text):
    assert all(len(line) <= 80 for line in row("label", text))


def test_a_command_is_whole_however_long():
    command = "`pip install " + "x" * 100 + "`"
    assert any("x" * 100 + "`" in line for line in unwrapped_row("to fix it", command))


def test_the_flags_of_its_libraries_have_a_row():
    package = well().package
    assert package.info is not None
    assert package.info.claims is not None
    flags = tuple(
        LibraryFlags(file, ("cuda: --use_fast_math", "operator off: gemm")) for file in ("a", "b")
    )
    claims = dataclasses.replace(package.info.claims, flags=flags)
    made = dataclasses.replace(package, info=dataclasses.replace(package.info, claims=claims))
    assert "  flags    cuda: --use_fast_math, operator off: gemm\n" in package_text(
        made, (), verbose=True
    )
    assert "  flags" not in package_text(package, (), verbose=True)


AGAIN = "`uv --preview-features wheel-variants pip install --reinstall --index-url URL demo`"
CU13 = {"nvidia": {"cuda_version_lower_bound": ("13.0",), "sm_arch": ("90_real",)}}
CU14 = {"nvidia": {"cuda_version_lower_bound": ("14.0",), "sm_arch": ("90_real",)}}


@pytest.mark.parametrize(
    ("labels", "gpus", "says"),
    [
        ({"cu13": CU13}, MACHINE.gpus, "cu13, which fits this machine"),
        ({"null": {}}, (), "null, which fits this machine"),
        ({"null": {}}, MACHINE.gpus, f"null, which has no kernels, and there is a GPU; {AGAIN}"),
        ({"cu13": CU13}, (), "cu13, which is for other machines: sm_arch 90_real, and here: GPUs:"),
        ({"cu14": CU14}, MACHINE.gpus, "cuda_version_lower_bound 14.0, and here: a driver for"),
    ],
)
def test_a_label_has_a_row_that_says_whether_it_fits(labels, gpus, says):
    package = well().package
    assert package.info is not None
    made = dataclasses.replace(package, info=dataclasses.replace(package.info, labels=labels))
    text = package_text(made, gpus, verbose=False, driver=MACHINE.driver)
    assert says in " ".join(text.split())
    assert "  label" not in package_text(package, gpus, verbose=False, driver=MACHINE.driver)


@pytest.mark.parametrize("home", ["~/x", "~nosuchuser/x", "", "relative"])
def test_a_home_folder_that_is_none_changes_no_row(home, monkeypatch):
    monkeypatch.setenv("HOME", home)
    assert row("cache", "/somewhere/x")[0].endswith(" /somewhere/x")
