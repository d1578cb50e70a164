"""A build's environment sees the packages of the cached one below it, and changes none of them."""

from pathlib import Path

import pytest

from torchwheel.sdist.build_setup import install_beside_torch, share_torch
from torchwheel.smoke import trial_environment
from torchwheel.smoke.testing import EnvironmentTorch, run_python
from torchwheel_runtime.console import Quiet
from wheelmaker import make_wheel, requirement_of

pytestmark = pytest.mark.integration

TORCH = EnvironmentTorch("2.13.0+cpu", None, None, Path("torch"))


@pytest.fixture
def base(tmp_path):
    """A cached environment with a torch and a package that torch needs."""
    wheels = [
        make_wheel(tmp_path / "wheels", name=name, version=version, requires=())
        for name, version in (("torch", "2.13.0"), ("jinja2", "1.0"))
    ]
    return trial_environment.base_environment(
        tmp_path / "cache", list(map(requirement_of, wheels)), Quiet()
    )


@pytest.fixture
def folder(tmp_path, base):
    """The folder of a build."""
    (tmp_path / "build").mkdir()
    return tmp_path / "build"


@pytest.fixture
def env(base, folder):
    env = trial_environment.layered_environment(base, folder / "env")
    share_torch(base, folder / "packages", env)
    return env


def files_of(env, folder: Path, *names: str) -> list[Path]:
    """Where a build finds packages."""
    code = (
        "import importlib, sys; [print(importlib.import_module(n).__file__) for n in sys.argv[1:]]"
    )
    done = run_python(env, ["-c", code, *names], folder)
    assert done.status == 0, done.errors
    return [Path(line).parent for line in done.output.split()]


def test_torch_has_a_path_without_a_python_and_nothing_else_has(base, env, folder):
    site = trial_environment.site_of(base)
    found = files_of(env, folder, "torch", "jinja2")
    assert found == [folder / "packages" / "torch", site / "jinja2"]
    # What is linked could be changed through its link: the fewer packages the better.
    assert [path.name for path in (folder / "packages").iterdir()] == ["torch"]


def test_a_requirement_that_replaces_a_package_leaves_the_cached_one_alone(
    tmp_path, base, env, folder
):
    before = sorted(base.rglob("*"))
    newer = make_wheel(tmp_path, name="jinja2", version="2.0", requires=())
    install_beside_torch(env, TORCH, folder, [newer], "a requirement")
    assert files_of(env, folder, "jinja2") == [env.site / "jinja2"]
    assert sorted(base.rglob("*")) == before
