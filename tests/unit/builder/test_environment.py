from pathlib import Path

import pytest

from torchwheel.builder import environment
from torchwheel.builder.jobs import BYTES_PER_JOB, parallel_jobs
from torchwheel.errors import UsageError

FULL = {
    environment.ABI: "stable",
    environment.NAME: "cu130-stable",
    environment.CUDA_HOME: "/cuda",
    environment.TOOLKIT: "13.0",
    environment.ARCH_LIST: "8.0;9.0+PTX",
    environment.TORCH_INCLUDE: "/torch",
    environment.TORCH_FLOOR: "2.11",
}


def test_without_an_abi_the_package_is_pure():
    assert environment.target({"CUDA_HOME": "/cuda"}, Path()) is None


def test_a_whole_environment_is_a_target():
    target = environment.target(FULL, Path("/p"))
    assert target is not None
    assert target.gencode == (
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    )
    assert (target.cxx, target.launcher) == ("g++", ())


@pytest.mark.parametrize("name", sorted(set(FULL) - {environment.ABI, environment.NAME}))
def test_what_is_missing_is_named(name):
    environ = {key: value for key, value in FULL.items() if key != name}
    with pytest.raises(UsageError, match=f"needs {name} too"):
        environment.target(environ, Path())


def test_an_unknown_abi_and_a_bad_arch_are_named():
    with pytest.raises(UsageError, match="TORCHWHEEL_ABI=atten: stable or pure expected"):
        environment.target({environment.ABI: "atten"}, Path())
    with pytest.raises(UsageError, match=r'"9\.x" is not an arch'):
        environment.arch_list("8.0 9.x")


def test_archs_may_be_parted_by_blanks_as_torch_allows():
    assert environment.arch_list("8.0 9.0+PTX") == environment.arch_list("8.0;9.0+PTX")


def test_jobs_follow_cores_and_free_memory():
    assert parallel_jobs({}, cores=8, free=100 * BYTES_PER_JOB) == 8
    assert parallel_jobs({}, cores=8, free=3 * BYTES_PER_JOB) == 3
    assert parallel_jobs({}, cores=8, free=0) == 1
    assert parallel_jobs({"MAX_JOBS": "5"}, cores=2, free=0) == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_bad_max_jobs_is_named(text):
    with pytest.raises(UsageError, match=f"MAX_JOBS={text}"):
        parallel_jobs({"MAX_JOBS": text})
