"""Kernels that one job compiles and another one links: a real compiler, on the host."""

import json
import re
import shutil
from pathlib import Path

import pytest

from torchwheel_runtime.files import sha256

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
SECOND = '#include "scale.h"\n__global__ void second(float* x) { x[0] = 1; }\n'


def wheel_of(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The small extension with a second kernel file and a second arch."""
    folder = Path(shutil.copytree(HERE / "tiny", tmp_path_factory.mktemp("kernels") / "tiny"))
    (folder / "csrc" / "scale_second.cu").write_text(SECOND)
    description = folder / "tiny" / "extension.py"
    text = description.read_text()
    assert text.count('"scale.cu"') == 1
    description.write_text(text.replace('"scale.cu"', '"scale*.cu"'))
    matrix = folder / "matrix.yaml"
    text = matrix.read_text()
    assert text.count('archs: ["9.0"]') == 1
    matrix.write_text(text.replace('archs: ["9.0"]', 'archs: ["8.0", "9.0+PTX"]'))
    return folder


@pytest.mark.nightly
def test_linked_from_shards_a_wheel_has_the_bytes_of_one_that_compiles(
    project, torchwheel, tmp_path
):
    def run(*arguments):
        return torchwheel(*arguments, cwd=project, status=0)

    whole = run("kernels", "cu130", "--twice", "--out", tmp_path / "whole")
    assert re.search(r"^compiled  \S+/cu130-[0-9a-f]{16}: 3 objects$", whole.stdout, re.M)
    assert run("kernels", "cu130", "--out", tmp_path / "whole").stdout.startswith("kept ")
    for shard in ("2/3", "3/3", "1/3"):
        run("kernels", "cu130", "--twice", "--shard", shard, "--out", tmp_path / "parts")
    shards = [
        [one["output"] for one in read(path)] for path in sorted((tmp_path / "parts").glob("cu*"))
    ]
    made = sorted(output for shard in shards for output in shard)
    files = ("scale", "scale_second")
    ends = ("compute_90.ptx", "host.o", "sm_80.cubin", "sm_90.cubin")
    device = [f"obj/{file}.cu.{end}" for file in files for end in ends]
    assert [output for output in made if ".cu." in output] == device
    assert len(made) == 9
    assert [len(shard) for shard in shards] == [3, 3, 3]

    # The objects of the kernels job are this machine's own: another copy of the project has none.
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("dist"))
    call = ("wheels", "cu130-stable", "--kernels", tmp_path / "parts", "--kernels-only", "--twice")
    done = torchwheel(*call, cwd=copy, status=0)
    assert "link cu130-stable.so" in done.stderr
    assert "CUDA scale" not in done.stderr
    record = json.loads((copy / "dist/.torchwheel/cu130-stable.json").read_text())
    assert record["built_twice"]
    assert sorted(record["kernels"]) == sorted(p.name for p in (tmp_path / "parts").glob("cu*"))
    run("wheels", "cu130-stable")
    assert sha256(wheel_of(copy / "dist")) == sha256(wheel_of(project / "dist"))

    # Another source: refused, or compiled here.
    (copy / "csrc" / "scale_second.cu").write_text(f"// changed\n{SECOND}")
    done = torchwheel(*call, cwd=copy, status=1)
    assert re.search(
        r"^failed: cu130-stable: \S+/cu130-\S+: expected kernels of \"csrc/scale_second\.cu\" "
        r"[0-9a-f]{16}, found \"csrc/scale_second\.cu\" [0-9a-f]{16}; compile them with "
        r"`torchwheel kernels cu130`$",
        done.stdout,
        re.M,
    ), done.stdout
    done = torchwheel("wheels", "cu130-stable", "--kernels", tmp_path / "parts", cwd=copy, status=0)
    assert "; now they are compiled here" in done.stderr
    assert "CUDA scale_second.cu" in done.stderr


def read(folder: Path) -> list[dict[str, str]]:
    path = folder / "manifest.json"
    return json.loads(path.read_text())["objects"] if path.is_file() else []


def test_a_compile_that_fails_leaves_no_artifact(project, torchwheel, tmp_path):
    copy = Path(shutil.copytree(project, tmp_path / "copy"))
    (copy / "csrc" / "scale_second.cu").write_text("int broken(\n")
    done = torchwheel("kernels", "cu130", "--out", tmp_path / "out", cwd=copy, status=1)
    assert re.search(
        r"torchwheel: building \S+scale_second.cu.o failed: .*\(all of it in", done.stderr
    )
    assert not list((tmp_path / "out").glob("cu*"))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("kernels cu124", 'no toolkit "cu124" has kernels here'),
        ("kernels cu130 --shard 3/2", '--shard: expected e.g. "2/3", the second of three, found'),
        ("kernels cu130 --archs sm_9", "--archs"),
        ("wheels cu130-stable --kernels-only", "--kernels-only goes with --kernels FOLDER"),
        ("wheels cu130-stable --kernels gone", "--kernels "),
    ],
)
def test_a_wrong_call_is_one_line(tiny, torchwheel, call, says):
    done = torchwheel(*call.split(), cwd=tiny, status=2)
    assert says in done.stderr.splitlines()[-1]
