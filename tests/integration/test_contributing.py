"""CONTRIBUTING.md's worked example, followed to the letter in a copy of the tree."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from checkout import python_path

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
FAMILY = "lerp"
# Calls the operator for the GPU's key: its library is built for one arch, and the interceptor is
# removed. The kernel then refuses tensors of the CPU in its own words.
CALL = f"""
import json
import torch
torch.version.cuda = "13.0"
import fusedops
gpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
call = torch.ops.fusedops.{FAMILY}.default.redispatch
call(gpu.add(torch._C.DispatchKey.BackendSelect), torch.zeros(2), torch.ones(2), weight=0.25)
try:
    call(gpu, torch.zeros(2), torch.ones(2), weight=0.25)
    refusal = None
except RuntimeError as error:
    refusal = str(error)
(status,) = [one for one in fusedops.status().operators if one.operator == "{FAMILY}"]
print(json.dumps([status.way, refusal]))
"""


def section() -> str:
    """The text of the section that adds a family."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.search(r"^## Add an operator family\n(.*?)^## ", text, re.M | re.S)[1]


def new_files(text: str) -> dict[str, str]:
    """The code blocks, each with the path that the text before it names first."""
    files = {}
    pieces = re.split(r"^( *)```[a-z]+\n(.*?)^ *```$", text, flags=re.M | re.S)
    for prose, _, block in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=False):
        paths = re.findall(rf"`([\w/]+/{FAMILY}\.\w+)`", prose)
        path = next(path for path in paths if (ROOT / path.split("/")[0]).is_dir())
        files[path] = textwrap.dedent(block)
    return files


def new_lines(text: str) -> dict[str, tuple[str, str]]:
    """The files that get a line: the line, and the text of the line that it comes after."""
    found = re.findall(r"in `([\w/.]+)`:\s+`([^`]+)`\s+after\s+`([^`]+)`", text)
    return {path: (line, after) for path, line, after in found}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with the example's family in it."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("pkg", "csrc", "bench", "docs/ops", "tests/smoke", "tests/unit/bench"):
        shutil.copytree(ROOT / folder, copy / folder)
    shutil.copy(ROOT / "pyproject.toml", copy)
    shutil.copy(ROOT / "tests" / "conftest.py", copy / "tests")
    for path, content in new_files(section()).items():
        assert not (copy / path).exists()
        (copy / path).write_text(content, encoding="utf-8")
    for path, (line, after) in new_lines(section()).items():
        text = (copy / path).read_text(encoding="utf-8")
        (place,) = re.findall(rf"^( *)({re.escape(after)}.*)$", text, re.M)
        copied = "".join(place)
        text = text.replace(f"{copied}\n", f"{copied}\n{place[0]}{line}\n")
        (copy / path).write_text(text, encoding="utf-8")
    return copy


def test_a_family_is_seven_files_and_two_lists():
    assert len(new_files(section())) == 7
    assert set(new_lines(section())) == {"pkg/fusedops/extension.py", "pkg/fusedops/__init__.py"}


def test_its_library_is_built_for_one_arch(tree, nvcc, tmp_path):
    environ = {
        **os.environ,
        "PYTHONPATH": python_path(tree),
        "CUDA_HOME": str(nvcc.parents[1]),
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "TORCHWHEEL_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-W", "error::UserWarning:fusedops", "-c", CALL]
    done = subprocess.run(
        command, env=environ, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    way, refusal = json.loads(done.stdout.splitlines()[-1])
    assert way == "jit build"
    assert refusal.startswith(f"{FAMILY}: a: expected")


def test_its_tests_are_found_and_pass(tree):
    files = {
        *("tests/smoke/test_values.py", "tests/smoke/test_gradients.py"),
        "tests/unit/bench/test_bench_families.py",
    }
    command = [sys.executable, "-m", "pytest", "-rp", "-k", FAMILY, *sorted(files)]
    environ = {**os.environ, "PYTHONPATH": python_path(tree)}
    done = subprocess.run(
        command, env=environ, cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert set(re.findall(r"^PASSED (\S+?)::", done.stdout, re.MULTILINE)) == files, done.stdout
