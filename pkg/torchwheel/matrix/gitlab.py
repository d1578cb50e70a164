"""Prints variants as a child pipeline of GitLab's: the jobs of a release up to its folder.

It is JSON, which is YAML too. Every step is the nox session that the workflows for GitHub call.
"""

import json
from collections.abc import Sequence

from torchwheel.matrix.kernel_builds import KernelBuild, kernel_builds
from torchwheel.matrix.runners import build_runner, smoke_runner
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.shards import Shard

_Job = dict[str, object]

_NOX = "python3 -m pip install --require-hashes --requirement .github/actions/nox/requirements.txt"
_KERNELS = "dist/kernels"
_KEPT = "1 week"
_MOST_NEEDS = 50
"""The most jobs that GitLab lets one job need."""


def gitlab_text(
    matrix: Matrix, variants: Sequence[Variant], selection: Sequence[str], shards: int = 1
) -> str:
    """The pipeline, byte-stable, ending with a newline.

    Args:
        matrix: the matrix.
        variants: what to build.
        selection: the words that selected them, for `assemble`.
        shards: how many jobs compile the kernels of a toolkit, where the matrix does not say it.

    Raises:
        UsageError: a wheel is linked from more jobs than GitLab lets one need.
    """
    jobs: dict[str, _Job] = {}
    for build in kernel_builds(matrix, variants):
        for name, shard in build.artifacts(shards).items():
            jobs[name] = _kernels_job(matrix, build, shard)
    for variant in variants:
        builds = kernel_builds(matrix, [variant])
        linked = [name for build in builds for name in build.artifacts(shards)]
        if len(linked) > _MOST_NEEDS:
            raise UsageError(
                f"{variant.id}: is linked from {len(linked)} jobs; expected at most {_MOST_NEEDS}, "
                "which GitLab lets a job need: lower --shards, or build.shards of matrix.yaml"
            )
        jobs[f"wheel-{variant.id}"] = _build_job(matrix, variant, linked)
    for variant in variants:
        jobs[f"smoke-{variant.id}"] = _smoke_job(matrix, variant)
    jobs["assemble"] = _assemble_job(selection)
    pipeline = {
        "stages": ["kernels", "wheels", "smoke", "assemble"],
        "default": {"before_script": [_NOX], "interruptible": True},
        **jobs,
    }
    return json.dumps(pipeline, indent=1) + "\n"


def _job(stage: str, runner: str | tuple[str, ...], script: str, **more: object) -> _Job:
    tags = [runner] if isinstance(runner, str) else list(runner)
    return {"stage": stage, "tags": tags, "script": [script], "timeout": "3h", **more}


def _kernels_job(matrix: Matrix, build: KernelBuild, shard: Shard) -> _Job:
    return _job(
        "kernels",
        build_runner(matrix, build.variants[0]),
        'nox -s kernels -- --container --twice --shard "$SHARD" "$KERNELS"',
        variables={"SHARD": str(shard), "KERNELS": build.id},
        artifacts={"paths": [_KERNELS], "expire_in": _KEPT},
    )


def _build_job(matrix: Matrix, variant: Variant, linked: Sequence[str]) -> _Job:
    link = f" --kernels {_KERNELS} --kernels-only" if linked else ""
    kept = ("*.whl", "bundled/*.whl", ".torchwheel/$VARIANT.json", "smoke/$VARIANT.json")
    return _job(
        "wheels",
        build_runner(matrix, variant),
        f'nox -s wheels -- --container --locked --twice{link} "$VARIANT"',
        variables={"VARIANT": variant.id},
        needs=list(linked),
        artifacts={"paths": [f"dist/{name}" for name in kept], "expire_in": _KEPT},
    )


def _smoke_job(matrix: Matrix, variant: Variant) -> _Job:
    # A folder of its own: the build's record of the same name is in dist.
    record = "tried/$VARIANT/smoke/$VARIANT.json"
    return _job(
        "smoke",
        smoke_runner(matrix, variant),
        f'nox -s smoke -- --locked --record "{record}" dist/*.whl',
        variables={"VARIANT": variant.id},
        needs=[f"wheel-{variant.id}"],
        artifacts={"paths": [record], "expire_in": _KEPT},
    )


def _assemble_job(selection: Sequence[str]) -> _Job:
    chosen = {f"SELECTION_{number}": word for number, word in enumerate(selection, start=1)}
    words = " ".join(f'--selection "${name}"' for name in chosen)
    return {
        "stage": "assemble",
        # Without `needs` it gets the artifacts of all jobs.
        "script": [f"nox -s assemble -- {words} --out release dist tried/*"],
        "variables": chosen,
        "artifacts": {"paths": ["release"], "expire_in": _KEPT},
    }
