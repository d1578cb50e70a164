"""Every input that can change a wheel is in its cache key, so that a change builds it again."""

import dataclasses

import pytest

from torchwheel.matrix.variants import select
from torchwheel.pipeline.inputs import BuildPaths, build_environment, cache_key
from torchwheel_runtime.builder import recipe


@pytest.fixture
def run(run_of):
    return run_of()


def test_bundled_are_in_the_key_by_name_and_bytes(tmp_path, run):
    (variant,) = select(run.matrix, ["pure"])
    helper = tmp_path / "helper-1-py3-none-any.whl"
    keys = {cache_key(run, variant, [])}
    for path, content in ((helper, b"1"), (helper, b"2"), (helper.with_name("other.whl"), b"1")):
        path.write_bytes(content)
        keys.add(cache_key(dataclasses.replace(run, bundled=(path,)), variant, []))
    assert len(keys) == 4


def test_the_tests_without_a_gpu_are_in_the_key(run, run_of):
    smoke = run.matrix.smoke.model_copy(update={"without_gpu": ("test_load.py",)})
    chosen = run_of(run.matrix.model_copy(update={"smoke": smoke}))
    for variant in select(run.matrix, ["pure", "cu130-stable"]):
        assert cache_key(run, variant, []) != cache_key(chosen, variant, [])


def test_torchwheels_own_headers_are_in_the_key(tmp_path, run, monkeypatch):
    (variant,) = select(run.matrix, ["cu130-stable"])
    monkeypatch.setattr(recipe, "INCLUDE", tmp_path)
    keys = {cache_key(run, variant, [])}
    for text in ("one", "two"):
        (tmp_path / "kernels.h").write_text(text)
        keys.add(cache_key(run, variant, []))
    assert len(keys) == 3


def test_an_operator_that_is_switched_off_is_in_the_key(run, monkeypatch):
    (variant,) = select(run.matrix, ["cu130-stable"])
    paths = BuildPaths("/toolkit", "/torch", "/build", "/shared")
    keys, switches = set(), {}
    for value in ("", "0", "1"):
        monkeypatch.setenv("DEMO_BUILD_OP_SCALE", value)
        keys.add(cache_key(run, variant, []))
        # Containers get it too.
        switches[value] = build_environment(variant, paths)["DEMO_BUILD_OP_SCALE"]
    assert len(keys) == 3
    assert switches == {"": "", "0": "0", "1": "1"}
