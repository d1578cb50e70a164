"""The verdict: the first cause of what is wrong comes first; of what is well nothing is said."""

import dataclasses
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from doctor_cases import (
    CPU_TORCH,
    CUDA_TORCH,
    H200,
    ROCM_TORCH,
    SITE,
    TOOLKIT,
    case,
    links,
    native,
    package,
    status,
    waiting,
)
from packaging.tags import parse_tag

from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.doctor.case import CacheState
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.verdict import judge, judge_machine
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.jit.key import CacheKey
from torchwheel_runtime.machine.facts import Absent
from torchwheel_runtime.runtime.status import Refusal

RAISED = ImportResult(
    "raised", ("OSError: undefined symbol: _ZN3c104goneEv",), folders=(SITE / "demo",)
)
REFUSED = native(loaded=False)


LOST = native(loaded=False, links=links(undefined=frozenset({"_ZN3c104goneEv"})))
CUDA_LOST = native(
    loaded=False,
    links=links(
        absent={"libc10_cuda.so": "_C.so"},
        undefined=frozenset({"_ZN3c104cuda14current_deviceEv"}),
    ),
    needed=("libc10_cuda.so",),
)
NO_GPU = {"gpus": (), "driver": None, "driver_problem": Absent("no NVIDIA driver")}
SPLIT = (native("a.so", archs="8.0"), native("b.so", archs="9.0"))
EMPTY = (GpuCode("sass", parse("8.0"), ("kernel",)), GpuCode("sass", parse("9.0"), ()))
UNREAD = native(code=(), code_problem="byte 8: cut short", needed=("libcudart.so.13",))
HSACO = (GpuCode("hsaco", parse("gfx90a"), ("k",)),)
SASS = (GpuCode("sass", parse("9.0"), ("k",)),)
PLAIN = native(
    code=(),
    needed=("libc.so.6",),
    links=dataclasses.replace(links(), torch_symbols=frozenset()),
)
OLD_TORCH = dataclasses.replace(CUDA_TORCH, version="2.6.0+cu124", cuda="12.4")
ODD = Refusal("prebuilt", "_C.so: something odd")
LIBX = ("OSError: libx.so.1: cannot open shared object file",)
IDLE = (
    native("demo/_a.so", loaded=False),
    native("demo/_b.so", loaded=False, links=links(absent={"libx.so.1": "_b.so"})),
)


def with_natives(*natives, **machine):
    return case(package(natives=natives), **machine)


def names(verdict) -> list[str]:
    return [finding.rule for finding in verdict.findings]


WELL = {
    "loaded": (case(), "its native libraries are loaded, on NVIDIA H200 (9.0)"),
    "prebuilt": (
        case(package(status=status("prebuilt"))),
        "its operators are prebuilt, on NVIDIA H200",
    ),
    "waiting": (
        case(waiting()),
        "its operators are built at their first call, on NVIDIA H200 (9.0), and",
    ),
    "fallback by choice": (
        case(package(status=status("fallback", mode="fallback"), natives=())),
        "it runs on plain PyTorch, as TORCHWHEEL_MODE=fallback asks",
    ),
    "no GPU": (case(**NO_GPU), "there is no GPU here, so its kernels lie idle"),
    "no GPU, CPU torch": (
        case(torch=CPU_TORCH, **NO_GPU),
        "there is no GPU here, and torch 2.11.0+cpu is for CPUs, so its kernels lie idle",
    ),
    "no library": (with_natives(), "it can be imported"),
    "idle library": (
        with_natives(native(code=(), links=links(), loaded=False)),
        "it can be imported, and its libraries fit",
    ),
    "of libraries for several GPUs one fits": (
        with_natives(native("a.so"), native("b.so", code=HSACO)),
        "",
    ),
    "archs of all libraries in use": (with_natives(*SPLIT), ""),
    "unread code without a GPU": (with_natives(UNREAD, gpus=()), ""),
    "no torch, and none is asked for": (
        case(
            package(
                info=dataclasses.replace(package().info, torch=None, claims=None), natives=(PLAIN,)
            ),
            torch=None,
            torch_problem=Absent("not installed"),
        ),
        "",
    ),
}


@pytest.mark.parametrize(("made", "says"), WELL.values(), ids=WELL)
def test_what_is_well_has_no_findings(made, says):
    verdict = judge(made)
    assert verdict.ok, verdict
    assert says in verdict.says
    assert verdict.fix is None


# The names of the findings, the first cause first; `...` stands for others that follow.
WRONG = {
    "a CPU torch before the undefined symbol that follows from it": (
        case(package(natives=(CUDA_LOST,), imported=RAISED), torch=CPU_TORCH),
        ["backend", "library", "symbols", "import"],
        "expected a torch built for CUDA",
    ),
    "another torch before the undefined symbol that follows from it": (
        case(package(natives=(LOST,), imported=RAISED), torch=OLD_TORCH),
        ["torch", "symbols", ...],
        "",
    ),
    "NVIDIA's kernels on AMD's": (
        with_natives(native(code=SASS), torch=ROCM_TORCH),
        ["backend", ...],
        "",
    ),
    "AMD's kernels on NVIDIA's": (
        with_natives(native(code=HSACO), torch=CUDA_TORCH),
        ["backend", ...],
        "",
    ),
    "no arch of the GPU": (
        with_natives(*SPLIT[:1]),
        ["archs"],
        "GPU 0 (NVIDIA H200, 9.0); found 8.0",
    ),
    "an arch that only link steps left": (with_natives(native(code=EMPTY)), ["archs"], ""),
    "code that cannot be read": (
        with_natives(UNREAD),
        ["gpu-code"],
        "cannot be read: byte 8: cut short",
    ),
    "one GPU of two without code": (
        case(gpus=(H200, Gpu(1, "Tesla P100", parse("6.0")))),
        ["archs"],
        "GPU 1 (Tesla P100, 6.0)",
    ),
    "an old driver before archs": (
        with_natives(native(archs="8.0"), driver=Driver("cuda", "535.104.05", "12.2")),
        ["driver", "archs"],
        "",
    ),
    "a CPU torch beside a GPU, and what is built": (
        case(waiting(status=status("fallback")), torch=CPU_TORCH),
        ["backend"],
        "",
    ),
    "a fallback that no rule explains": (
        case(package(natives=(), status=status("fallback", ODD))),
        ["fallback"],
        "scale on plain PyTorch: prebuilt: _C.so: something odd",
    ),
    "of idle libraries the one that the error names": (
        case(
            package(natives=IDLE, imported=ImportResult("raised", LIBX, unloaded=LIBX)),
        ),
        ["library", "import"],
        "demo/_b.so asks for libx.so.1",
    ),
}


@pytest.mark.parametrize(("made", "expected", "says"), WRONG.values(), ids=WRONG)
def test_the_first_cause_comes_first(made, expected, says):
    verdict = judge(made)
    if expected[-1] is ...:
        assert names(verdict)[0] == expected[0]
        assert set(expected[:-1]) <= set(names(verdict))
    else:
        assert names(verdict) == expected
    assert says in verdict.says
    assert verdict.fix == verdict.findings[0].fix


def test_without_torch_nothing_else_is_said_of_it():
    words = ("ModuleNotFoundError: No module named 'torch'",)
    failed = package(
        natives=(REFUSED,), imported=ImportResult("raised", words, missing_modules=("torch",))
    )
    verdict = judge(case(failed, torch=None, torch_problem=Absent("torch is not installed")))
    assert names(verdict)[0] == "torch"
    assert "dependency" not in names(verdict)


def test_a_gpu_on_the_bus_without_a_driver():
    made = case(
        gpus=(), driver=None, driver_problem=Absent("no NVIDIA driver"), gpus_problem=Absent("none")
    )
    assert judge(made).ok
    verdict = judge(dataclasses.replace(made, hardware=("cuda",)))
    assert names(verdict) == ["driver"]
    assert "there is an NVIDIA GPU, and no driver for it" in verdict.says
    assert judge(dataclasses.replace(made, hardware=("rocm",))).ok


@pytest.mark.parametrize("words", ["", "the NVIDIA driver does not answer: x; y", "A=1", "new"])
def test_the_wording_of_a_fact_decides_nothing(words):
    """A driver that is absent, one that is silent, GPUs that are hidden and none at all."""
    absent = {"gpus": (), "driver": None}
    assert judge(case(**absent, driver_problem=Absent(words))).ok
    silent = judge(case(**absent, driver_problem=Absent(words, "wake it", "it is silent")))
    assert [(f.rule, f.fact, f.fix) for f in silent.findings] == [
        ("driver", "it is silent", "wake it")
    ]
    hidden = judge(case(gpus=(), gpus_problem=Absent(words, "`unset HIDES`")))
    assert [(f.rule, f.fix) for f in hidden.findings] == [("gpus", "`unset HIDES`")]
    none = judge(case(gpus=(), gpus_problem=Absent(words)))
    assert [(f.rule, f.fix) for f in none.findings] == [("gpus", "give this user the GPUs")]


@pytest.mark.parametrize("words", ["ModuleNotFoundError: No module named 'b'", "another language"])
def test_the_wording_of_an_error_of_the_import_decides_nothing(words, tmp_path):
    failed = ImportResult("raised", (words,))
    assert names(judge(case(package(imported=failed, natives=())))) == ["import"]
    missing = dataclasses.replace(failed, missing_modules=("a.b",))
    info = dataclasses.replace(package().info, requires=frozenset({"a"}))
    verdict = judge(case(package(imported=missing, natives=(), info=info)))
    assert verdict.fix == "`pip install a`"
    # Of Python itself: something is in its way, and an index may have anything of that name.
    hidden = dataclasses.replace(failed, missing_modules=("email.message",))
    assert names(judge(case(package(imported=hidden, natives=())))) == ["import"]
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libtorch.so").touch()
    refused = dataclasses.replace(failed, unloaded=(words,), torch=False)
    torch = dataclasses.replace(CUDA_TORCH, folder=tmp_path)
    made = case(package(imported=refused, natives=(REFUSED,)), torch=torch)
    assert names(judge(made)) == ["import-order"]
    imported = dataclasses.replace(refused, torch=True)
    assert names(judge(case(package(imported=imported), torch=torch))) == ["import"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"toolkits": ()}, "toolkit"),
        ({"host": None, "host_problem": Absent("no C++ compiler")}, "host-compiler"),
        ({"toolkits": (dataclasses.replace(TOOLKIT, problem="mixed"),)}, "toolkit"),
        ({"gpus": (Gpu(0, "Tesla P100", parse("6.0")),)}, "archs"),
    ],
)
def test_what_stands_in_the_way_of_a_build(changes, rule):
    verdict = judge(case(waiting(), **changes))
    assert names(verdict) == [rule]
    assert verdict.fix
    # Nothing is built where there is no GPU, or a library in use.
    assert judge(case(waiting(), **{**changes, "gpus": (), "driver": None})).ok
    assert rule not in names(judge(case(**{**changes, "gpus": (H200,)})))


def test_a_toolkit_that_may_be_downloaded_is_not_missing():
    made = case(waiting(), toolkits=())
    allowed = dataclasses.replace(made, environ={"TORCHWHEEL_DOWNLOAD": "1"})
    assert not judge(made).ok
    assert judge(allowed).ok
    # No lock has a compiler of CUDA 12, so the build would fail.
    older = dataclasses.replace(made.machine, torch=dataclasses.replace(CUDA_TORCH, cuda="12.4"))
    assert names(judge(dataclasses.replace(allowed, machine=older))) == ["toolkit"]


def test_a_gpu_without_code_is_built_for_beside_those_with_kernels():
    """Only the waiting GPU counts for the build: the toolkit need not know the other one."""
    prebuilt = dataclasses.replace(status("prebuilt"), waiting_gpus=(1,))
    old, new = Gpu(0, "NVIDIA V100", parse("7.0")), Gpu(1, "NVIDIA B200", parse("10.0"))
    made = case(package(natives=(), status=prebuilt), gpus=(old, new))
    assert judge(made).says.endswith(
        "its operators are prebuilt on NVIDIA V100 (7.0), and built at their first call on NVIDIA "
        "B200 (10.0)"
    )
    bare = dataclasses.replace(made, machine=dataclasses.replace(made.machine, toolkits=()))
    assert names(judge(bare)) == ["toolkit"]
    swapped = dataclasses.replace(prebuilt, waiting_gpus=(0,))
    refused = judge(case(package(natives=(), status=swapped), gpus=(old, new)))
    assert names(refused) == ["archs"]


CORRUPT = ("demo.scale", "other.x")


def test_the_cache_counts_for_what_is_built_alone():
    bad = CacheState(
        SITE,
        problem="/cache cannot be written",
        corrupt={CacheKey(f"{name}-0", ""): f"{name}-0/a.so: changed" for name in CORRUPT},
    )
    verdict = judge(case(waiting(), cache=bad))
    assert names(verdict) == ["cache", "cache"]
    assert "demo.scale-0" in verdict.findings[1].fact
    assert judge(case(cache=bad)).ok


@pytest.mark.parametrize(
    ("how", "words", "says"),
    [
        ("raised", ("A: a", "B: b", "C: c"), "raises A: a, from C: c (demo/x.py:3)"),
        ("raised", ("A: a",), "raises A: a (demo/x.py:3)"),
        ("killed", ("SIGILL",), "crashes Python with SIGILL (demo/x.py:3)"),
        ("left", ("exit status 3",), "ends Python with exit status 3 (demo/x.py:3)"),
        ("hung", ("120 s",), "did not end in 120 s (demo/x.py:3)"),
        ("not found", ("",), "finds no such module"),
    ],
)
def test_an_import_that_fails_for_a_reason_of_its_own(how, words, says):
    failed = ImportResult(how, words, file=SITE / "demo/__init__.py", where="demo/x.py:3")
    verdict = judge(case(package(imported=failed, natives=())))
    assert names(verdict) == ["import"]
    assert f"import demo {says}" in verdict.says


@pytest.mark.parametrize(("word", "ok"), [("auto", True), ("", True), ("of", False)])
def test_a_mode_that_is_none(word, ok):
    made = dataclasses.replace(case(waiting()), environ={"TORCHWHEEL_MODE": word})
    assert judge(made).ok is ok
    plain = dataclasses.replace(case(), environ=made.environ)
    assert judge(plain).ok, "it loads no library by a mode"


NONE = Refusal("prebuilt", "none in this installation", fault=False)
SAME = {
    "a library in a torch for CPUs": (status("prebuilt"), CPU_TORCH, 0, "plain PyTorch, as "),
    "a pure wheel in a torch for CPUs": (status("fallback", NONE), CPU_TORCH, 0, "plain PyTorch"),
    "no GPU": (status("prebuilt"), CUDA_TORCH, 0, "plain PyTorch, as there is no GPU here"),
    "to be built, and no GPU": (status("waiting"), CUDA_TORCH, 0, "plain PyTorch, as there is no"),
    "mode fallback": (
        *(status("fallback", mode="fallback"), CUDA_TORCH, 1),
        "plain PyTorch, as TORCHWHEEL_MODE=fallback asks",
    ),
    "mode prebuilt, and none is": (
        *(status("fallback", NONE, mode="prebuilt"), CUDA_TORCH, 1),
        "plain PyTorch, as TORCHWHEEL_MODE=prebuilt asks",
    ),
    "a GPU without code": (status("fallback", ODD), CUDA_TORCH, 1, "plain PyTorch"),
    "a GPU": (status("prebuilt"), CUDA_TORCH, 1, "prebuilt"),
    "a GPU to be built for": (status("waiting"), CUDA_TORCH, 1, "built at its first call"),
}


@pytest.mark.parametrize(("found", "torch", "gpus", "says"), SAME.values(), ids=SAME)
def test_the_status_and_the_verdict_say_the_same(found, torch, gpus, says, monkeypatch):
    version = SimpleNamespace(cuda=torch.cuda, hip=torch.hip)
    cuda = SimpleNamespace(device_count=lambda: gpus)
    ours = SimpleNamespace(version=version, __version__=torch.version, cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", ours)
    made = package(natives=(), status=found)
    verdict = judge(case(made, torch=torch, gpus=(H200,) * gpus)).says
    assert says in str(found).partition("\n")[0]
    assert says.replace("its first call", "their first call") in verdict


FAMILIES = tuple(
    dataclasses.replace(status("fallback", ODD).operators[0], operator=name) for name in "abc"
)


def test_one_reason_is_one_finding():
    found = dataclasses.replace(status("fallback", ODD), operators=FAMILIES)
    (finding,) = judge(case(package(natives=(), status=found))).findings
    assert finding.fact == "a, b, c on plain PyTorch: prebuilt: _C.so: something odd"


def test_a_rule_that_is_let_pass_is_not_told():
    made = case(package(natives=(native(archs="8.0"),)))
    assert judge(dataclasses.replace(made, environ={"TORCHWHEEL_IGNORE": "archs"})).ok
    with pytest.raises(UsageError, match="no rule"):
        judge(dataclasses.replace(made, environ={"TORCHWHEEL_IGNORE": "arch"}))


def test_a_machine_without_a_package():
    assert judge_machine(case().machine).ok
    broken = judge_machine(case(torch=None, torch_problem=Absent("torch is not installed")).machine)
    assert (broken.ok, broken.says) == (False, "torch is not installed")


def test_a_pipe_in_a_dist_info_is_replaced_as_pip_cannot_read_it(tmp_path):
    folder = tmp_path / "demo-1.0.0+cu130.dist-info"
    folder.mkdir()
    (folder / claims_file.FILE).touch()
    info = dataclasses.replace(package().info, irregular=(folder / "entry_points.txt",))
    verdict = judge(case(package(info=info)))
    assert names(verdict) == ["complete"]
    assert 'damaged: "demo-1.0.0+cu130.dist-info/entry_points.txt" is no regular' in verdict.says
    assert verdict.fix == (
        f"`rm -r {folder}`, then `pip install --no-deps --index-url URL demo==1.0.0+cu130`"
    )


def test_a_torch_that_gave_no_answer_is_not_installed_again():
    waits = case(torch_problem=Absent("gave no answer in 5 s", "look"))
    assert (judge(waits).fix, judge_machine(waits.machine).fix) == ("look", "look")
    broken = case(torch_problem=Absent("torch is broken"))
    for fix in (judge(broken).fix, judge_machine(broken.machine).fix):
        assert fix.startswith("`pip install --force-reinstall torch")


# An index may have a stranger's package of a name that torchwheel did not build.
NOT_OURS = dataclasses.replace(package().info, claims=None, ours=False)
OLD_SYSTEM = links(outdated=((Path("/l.so"), "GLIBCXX_9"),))
NOBODYS = links(undefined=frozenset({"nobodys"}))
STRANGERS = {
    "not installed": (
        {"info": None, "root": None, "imported": ImportResult("not found"), "natives": ()},
        "`torchwheel install demo --index URL`, with the index that its authors name",
    ),
    "damaged": ({"info": dataclasses.replace(NOT_OURS, problems=("x is gone",))}, "ORIGIN"),
    "a pipe": (
        {"info": dataclasses.replace(NOT_OURS, irregular=(SITE / "demo-1.dist-info/RECORD",))},
        "ORIGIN",
    ),
    "another Python": (
        {"info": dataclasses.replace(NOT_OURS, tags=parse_tag("cp39-cp39-any"))},
        "ORIGIN",
    ),
    "a module is missing": (
        {"imported": ImportResult("raised", ("x",), missing_modules=("cv2",))},
        "`pip check`",
    ),
    "an old libstdc++": ({"natives": (native(loaded=False, links=OLD_SYSTEM),)}, "SOURCE"),
    "an old glibc": ({"natives": (native(glibc="2.99"),)}, "SOURCE"),
    "another torch": ({"natives": (LOST,), "imported": RAISED}, "SOURCE"),
    "symbols of nobody": ({"natives": (native(loaded=False, links=NOBODYS),)}, "ORIGIN"),
    "a fallback": ({"status": status("fallback", ODD), "natives": ()}, "ORIGIN"),
}


@pytest.mark.parametrize(("facts", "says"), STRANGERS.values(), ids=STRANGERS)
def test_no_advice_asks_an_index_for_a_name_that_may_be_a_strangers(facts, says):
    fixes = [one.fix for one in judge(case(package(**{"info": NOT_OURS, **facts}))).findings]
    assert any(says in fix for fix in fixes), fixes
    assert not [fix for fix in fixes if re.search(r"pip install [^`]*(demo|cv2)", fix)]
    info = facts.get("info") or package().info
    ours = dataclasses.replace(info, ours=True)
    fixes = [one.fix for one in judge(case(package(**{**facts, "info": ours}))).findings]
    commands = [fix for fix in fixes if re.search(r"pip install [^`]*demo", fix)]
    assert all("--index-url URL" in command for command in commands), commands


def test_a_zipped_egg_is_not_judged():
    info = dataclasses.replace(NOT_OURS, kind="zipped egg", torch=None)
    verdict = judge(case(package(info=info, natives=())))
    assert verdict.ok
    assert verdict.says.endswith("it is a zip file (.egg), whose libraries are not judged")
