"""Artifacts of compiled kernels: which are used, and the line about each that is not."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.image.engine import Engine
from torchwheel.image.images import BuiltImage
from torchwheel.matrix.kernel_builds import select_kernels
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline import container_options, kernel_artifacts
from torchwheel.pipeline.inputs import cache_key
from torchwheel.pipeline.kernel_artifacts import (
    KernelArtifact,
    KernelInputs,
    Manifest,
    choose_artifacts,
    digests,
    folder_name,
    kernel_inputs,
    read_artifact,
    write_manifest,
)
from torchwheel.pipeline.variant import is_reproduced
from torchwheel_runtime.builder.objects import CompiledObject
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.shards import Shard, parse_shard

MATRIX = Path(__file__).parents[1] / "matrix" / "full.yaml"
INPUTS = KernelInputs(
    kernels="cu124",
    project="demo",
    archs="8.0;9.0",
    toolkit="12",
    compiler="image 0123",
    torchwheel="0.1.0 ab",
    build="",
    switches="",
    sources={"csrc/a.cu": "a" * 64, "csrc/a.h": "b" * 64},
)


def make(folder: Path, inputs=INPUTS, shard="1/1", outputs=("a.cu.o", "b.cu.o")) -> Path:
    """An artifact with an object for each output."""
    made = folder / folder_name(inputs, parse_shard(shard, "shard"))
    made.mkdir(parents=True)
    objects = []
    for output in outputs:
        content = output.encode()
        entry = CompiledObject("device", output, "cd", hashlib.sha256(content).hexdigest())
        (made / entry.file).write_bytes(content)
        objects.append(entry)
    write_manifest(made, Manifest(inputs, shard, False, tuple(objects)))
    return made


def refusal(folder: Path, inputs=INPUTS) -> str:
    with pytest.raises(TorchwheelError) as caught:
        choose_artifacts(folder, inputs)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(folder))
    assert "; compile them " in line
    return line.removeprefix(f"{folder}")


def edit(made: Path, change) -> None:
    path = made / "manifest.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_the_artifact_of_these_inputs_is_chosen_among_others(tmp_path):
    make(tmp_path, dataclasses.replace(INPUTS, kernels="cu130"))
    make(tmp_path, dataclasses.replace(INPUTS, archs="9.0"))
    made = make(tmp_path)
    (chosen,) = choose_artifacts(tmp_path, INPUTS)
    assert chosen.folder == made
    assert digests([chosen]) == {made.name: chosen.digest}


def test_all_shards_are_needed_and_are_chosen_in_order(tmp_path):
    second = make(tmp_path, shard="2/2", outputs=["b.cu.o"])
    assert refusal(tmp_path) == (
        ": expected all shards of cu124, found 2/2; compile them with `torchwheel kernels cu124`"
    )
    first = make(tmp_path, shard="1/2", outputs=["a.cu.o"])
    assert [one.folder for one in choose_artifacts(tmp_path, INPUTS)] == [first, second]
    whole = make(tmp_path)
    assert [one.folder for one in choose_artifacts(tmp_path, INPUTS)] == [whole]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"kernels": "cu130"}, ": expected kernels of cu124, found cu130; "),
        ({"archs": "9.0"}, 'expected kernels of the archs "8.0;9.0", found "9.0"; '),
        ({"project": "else"}, 'expected kernels of the project "demo", found "else"; '),
        ({"compiler": "g++ 12"}, 'expected kernels of the compiler "image 0123", found "g++ 12"; '),
        ({"toolkit": "34"}, 'expected kernels of the toolkit "12", found "34"; '),
        ({"torchwheel": "0.2.0"}, 'the torchwheel "0.1.0 ab", found "0.2.0"; '),
        ({"switches": "DEMO_BUILD_OP_A=0"}, 'the switches "", found "DEMO_BUILD_OP_A=0"; '),
        (
            {"sources": {**INPUTS.sources, "csrc/a.cu": "c" * 64}},
            f'expected kernels of "csrc/a.cu" {"a" * 16}, found "csrc/a.cu" {"c" * 16}; ',
        ),
        (
            {"sources": {"csrc/a.cu": "a" * 64}},
            'expected kernels of "csrc/a.h" bbbbbbbbbbbbbbbb, found no such file; ',
        ),
    ],
)
def test_kernels_of_other_inputs_are_refused(tmp_path, other, says):
    make(tmp_path, dataclasses.replace(INPUTS, **other))
    assert says in refusal(tmp_path)


def test_an_empty_folder_and_none_at_all(tmp_path):
    assert ": expected kernels of cu124, found none; " in refusal(tmp_path)
    with pytest.raises(UsageError, match=r"^--kernels .*gone: expected a folder that `torchwheel"):
        choose_artifacts(tmp_path / "gone", INPUTS)


def test_an_object_that_is_cut_replaced_linked_or_missing(tmp_path):
    made = make(tmp_path)
    path = next(made.glob("*.o"))
    whole = path.read_bytes()
    for content in (whole[:-1], whole + b" ", b"planted"):
        path.write_bytes(content)
        assert f"/{made.name}/{path.name}: expected " in refusal(tmp_path)
        assert hashlib.sha256(content).hexdigest() in refusal(tmp_path)
    path.unlink()
    assert ": expected an object file, found none; " in refusal(tmp_path)
    elsewhere = tmp_path.parent / "elsewhere.o"
    elsewhere.write_bytes(whole)
    path.symlink_to(elsewhere)
    assert ": expected an object file, found none; " in refusal(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda value: value.update(schema=2), "expected schema 1, found 2"),
        (lambda value: value.pop("inputs"), 'expected key "inputs", found none'),
        (lambda value: value.update(more=1), 'expected no key "more", found one'),
        (lambda value: value.update(shard="3/2"), 'the second of three, found "3/2"'),
        (
            lambda value: value["objects"][0].update(sha256="../../etc/passwd"),
            'objects[0].sha256: expected the name of a file, found "../../etc/passwd"',
        ),
    ],
)
def test_a_malformed_manifest_is_one_line(tmp_path, change, says):
    made = make(tmp_path)
    edit(made, change)
    assert says in refusal(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_for_a_manifest_are_refused(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("artifacts")
    made = make(folder)
    (made / "manifest.json").write_bytes(content)
    with pytest.raises(MalformedError):
        read_artifact(made)
    refusal(folder)
    shutil.rmtree(folder)


def test_a_manifest_that_is_missing_and_one_that_is_a_folder(tmp_path):
    made = make(tmp_path)
    (made / "manifest.json").unlink()
    assert "manifest.json: expected a manifest, found an error: No such file" in refusal(tmp_path)
    (made / "manifest.json").mkdir()
    assert "expected a file, found a folder" in refusal(tmp_path)


def test_a_good_artifact_is_used_though_another_one_is_malformed(tmp_path):
    make(tmp_path)
    (tmp_path / "cu130-broken").mkdir()
    assert len(choose_artifacts(tmp_path, INPUTS)) == 1


@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("compiled", [(), (True,), (False,), (True, False)])
def test_a_wheel_of_linked_kernels_was_built_twice_if_they_were(tmp_path, run_of, twice, compiled):
    run = run_of(twice=twice)
    (variant,) = select(run.matrix, ["cu130-stable"])
    artifacts = tuple(
        KernelArtifact(tmp_path, Manifest(INPUTS, "1/1", value, ()), "ab") for value in compiled
    )
    run = dataclasses.replace(run, linked={variant.id: artifacts})
    assert is_reproduced(run, variant) == (twice and all(compiled))


def test_a_container_sees_the_artifacts_and_may_be_forbidden_to_compile(
    tmp_path, run_of, monkeypatch
):
    run = run_of()
    monkeypatch.setattr(container_options, "torch_headers", lambda *_: tmp_path / "torch")
    (variant,) = select(run.matrix, ["cu130-stable"])
    shards = [make(tmp_path, shard=shard) for shard in ("1/2", "2/2")]
    linked = {variant.id: choose_artifacts(tmp_path, INPUTS)}
    image = BuiltImage("image", "0123", "4567")

    def options(run):
        return container_options.options_of(run, variant, Engine("podman", {}), image, {})

    only = options(dataclasses.replace(run, linked=linked, kernels_only=True))
    inside = [f"/kernels/{path.name}" for path in shards]
    assert [v for v in only.volumes if "/kernels/" in v[1]] == [
        (str(path), name, "ro") for path, name in zip(shards, inside, strict=True)
    ]
    assert only.environment["TORCHWHEEL_KERNELS"] == ":".join(inside)
    assert only.environment["TORCHWHEEL_KERNELS_ONLY"] == "1"
    without = options(run)
    assert not [name for name in without.environment if name.startswith("TORCHWHEEL_KERNELS")]


def test_kernels_of_another_run_build_the_wheel_again(tmp_path, run_of):
    run = run_of()
    (variant,) = select(run.matrix, ["cu130-stable"])
    make(tmp_path)
    linked = {variant.id: choose_artifacts(tmp_path, INPUTS)}
    keys = [cache_key(one, variant, []) for one in (run, dataclasses.replace(run, linked=linked))]
    assert keys[0] != keys[1]


def inputs_of(project: Path, matrix=None, name="cu130", compiler=("g++",)):
    (build,) = select_kernels(matrix or load(MATRIX), [name])
    return kernel_inputs(build, "demo", project, compiler)


def test_each_input_is_in_the_name(tmp_path, monkeypatch):
    for name in ("a.cu", "a.h", "README.md"):
        (tmp_path / name).write_text(name)
    first = inputs_of(tmp_path)
    assert sorted(first.sources) == ["a.cu", "a.h"]
    (tmp_path / "README.md").write_text("other")
    assert inputs_of(tmp_path) == first
    matrix = load(MATRIX)
    section = matrix.toolkits["cu130"]
    fewer = section.model_copy(update={"archs": section.archs[:1]})
    other_archs = matrix.model_copy(update={"toolkits": {**matrix.toolkits, "cu130": fewer}})
    keys = [
        first.key,
        inputs_of(tmp_path, name="cu124").key,
        inputs_of(tmp_path, other_archs).key,
        inputs_of(tmp_path, compiler=("g++", "14")).key,
    ]
    monkeypatch.setattr(kernel_artifacts, "own_sources_digest", lambda: "new")
    keys.append(inputs_of(tmp_path).key)
    monkeypatch.undo()
    monkeypatch.setattr(kernel_artifacts, "components", lambda _: ())
    keys.append(inputs_of(tmp_path).key)
    monkeypatch.undo()
    (tmp_path / "a.h").write_text("other")
    keys.append(inputs_of(tmp_path).key)
    for value in ("0", "1"):
        monkeypatch.setenv("DEMO_BUILD_OP_SCALE", value)
        keys.append(inputs_of(tmp_path).key)
    assert len(set(keys)) == 9
    assert folder_name(first, Shard(2, 3)) == f"cu130-{first.key[:16]}-2of3"


def test_the_flags_of_the_extension_are_an_input_and_other_python_is_none(tmp_path):
    for name in ("a.cu", "extension.py", "ops.py"):
        (tmp_path / name).write_text("from demo.extension import EXTENSION\n")
    without = inputs_of(tmp_path)
    assert sorted(without.sources) == ["a.cu"]
    keys = {without.key}
    for flag in ("-O2", "--use_fast_math"):
        (tmp_path / "extension.py").write_text(f"EXTENSION = Extension(flags=Flags(('{flag}',)))\n")
        made = inputs_of(tmp_path)
        assert sorted(made.sources) == ["a.cu", "extension.py"]
        keys.add(made.key)
    assert len(keys) == 3
    (tmp_path / "ops.py").write_text("other\n")
    assert inputs_of(tmp_path) == made


def test_a_link_is_an_input_by_what_it_names(tmp_path):
    for name in ("one/a.h", "two/a.h"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    keys = set()
    for text in ("one", "two", "/proc/self"):
        (tmp_path / "include").unlink(missing_ok=True)
        (tmp_path / "include").symlink_to(text)
        if text.startswith("/"):
            with pytest.raises(UsageError, match="include: expected a link that stays in "):
                inputs_of(tmp_path)
        else:
            keys.add(inputs_of(tmp_path).key)
    assert len(keys) == 2
