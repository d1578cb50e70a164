"""Prints variants: a table, JSON, a GitHub `strategy.matrix`, a child pipeline of GitLab's.

The pipeline has the jobs of a release up to its folder. It is JSON, which is YAML too. Every step
is the nox session that the workflows for GitHub call.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchwheel.matrix.kernel_builds import KernelBuild, kernel_builds
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant, build_runner, gpu_runner, resolve, smoke_runner
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import hanging_lines, table_rows

MatrixFormat = Literal["table", "json", "github", "kernels", "gitlab"]

_MOST_JOBS = 256
"""The most jobs that GitHub runs of one strategy."""


@dataclasses.dataclass(frozen=True)
class MatrixPlan:
    """What a form shows.

    Attributes:
        matrix: the matrix.
        variants: what to build.
        shards: how many jobs compile the kernels of a toolkit, where the matrix does not say it.
        selection: the words that selected the variants, for `assemble`.
    """

    matrix: Matrix
    variants: Sequence[Variant]
    shards: int = 1
    selection: Sequence[str] = ()


def matrix_text(plan: MatrixPlan, form: MatrixFormat) -> str:
    """The variants in one of the forms, byte-stable, ending with a newline.

    The form "kernels" has the kernels that they link: a job for each shard of a toolkit.

    Raises:
        UsageError: there are more jobs than a CI runs at once, or than one of its jobs may need.
    """
    return _RENDERERS[form](plan)


def _json(plan: MatrixPlan) -> str:
    return json.dumps([_fields(variant) for variant in plan.variants], indent=1) + "\n"


def _github(plan: MatrixPlan) -> str:
    return _strategy([_job(plan, variant) for variant in plan.variants], "variants")


def _github_kernels(plan: MatrixPlan) -> str:
    jobs = [
        _kernels_job(plan.matrix, build, name, shard)
        for build in kernel_builds(plan.matrix, plan.variants)
        for name, shard in build.artifacts(plan.shards).items()
    ]
    return _strategy(jobs or [_no_kernels_job(plan.matrix, plan.variants[0])], "shards")


def _strategy(include: Sequence["_Job"], jobs: str) -> str:
    if len(include) > _MOST_JOBS:
        raise UsageError(
            f"{len(include)} {jobs} are more than GitHub's {_MOST_JOBS} jobs of one matrix; "
            "select fewer"
        )
    return json.dumps({"include": include}, separators=(",", ":")) + "\n"


def append_github_output(outputs: Mapping[str, str], file: Path) -> None:
    """Append lines, by the names of the outputs, to the output file of a step."""
    try:
        with file.open("a", encoding="utf-8") as out:
            out.writelines(f"{name}={text}" for name, text in outputs.items())
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None


_Job = dict[str, str | tuple[str, ...]]
"""The values that a workflow gets for a job: texts, which may be empty, and labels."""


def _kernels_job(matrix: Matrix, build: KernelBuild, artifact: str, shard: Shard) -> _Job:
    return {
        "kernels": build.id,
        "toolkit": build.toolkit.name,
        "platform": build.platform,
        "shard": str(shard),
        "artifact": artifact,
        "runner": build_runner(matrix, build.variants[0]),
    }


def _no_kernels_job(matrix: Matrix, variant: Variant) -> _Job:
    """The one job of a plan without kernels: GitHub refuses a strategy without jobs."""
    fields = ("kernels", "toolkit", "platform", "shard", "artifact")
    return {**dict.fromkeys(fields, ""), "runner": build_runner(matrix, variant)}


def _linked_artifacts(plan: MatrixPlan, variant: Variant) -> list[str]:
    """The artifacts of the kernels that a variant links."""
    builds = kernel_builds(plan.matrix, [variant])
    return [name for build in builds for name in build.artifacts(plan.shards)]


def _job(plan: MatrixPlan, variant: Variant) -> _Job:
    matrix, names = plan.matrix, _linked_artifacts(plan, variant)
    job: _Job = {
        key: ";".join(value) if isinstance(value, tuple) else value or ""
        for key, value in _fields(variant).items()
    }
    job["python"] = variant.python or ""
    # A pattern that matches them.
    job["kernels"] = f"{{{','.join(names)}}}" if len(names) > 1 else "".join(names)
    job["build_runner"] = build_runner(matrix, variant)
    job["gpu_runner"] = gpu_runner(matrix, variant)
    job["smoke_runner"] = smoke_runner(matrix, variant)
    return job


def _fields(variant: Variant) -> dict[str, str | tuple[str, ...] | None]:
    toolkit = variant.toolkit
    return {
        "variant": variant.id,
        "abi": variant.abi,
        "toolkit": toolkit.name if toolkit else None,
        "backend": toolkit.backend if toolkit else None,
        "toolkit_version": toolkit.version if toolkit else None,
        "source": toolkit.source if toolkit else None,
        "archs": tuple(map(str, toolkit.archs)) if toolkit else (),
        "torch": variant.torch_range,
        "torch_release": variant.torch_release if variant.native else None,
        "python_tag": variant.python_tag,
        "platform": variant.platform,
        "local": variant.local,
        "parts": tuple(part.id for part in variant.parts),
    }


def _table(plan: MatrixPlan) -> str:
    matrix, variants = plan.matrix, plan.variants
    rows = [("variant", "abi", "torch", "python", "platform")]
    rows += [(v.id, v.abi, v.torch_range, v.python_tag, v.platform) for v in variants]
    lines = table_rows("< < < < <", rows)
    lines += [f"{len(variants)} of {len(resolve(matrix))} variants", ""]
    if toolkits := dict.fromkeys(v.toolkit for v in variants if v.toolkit):
        head = ("toolkit", "release", "source", "archs")
        cells = [(t.name, str(t.release), t.source, " ".join(map(str, t.archs))) for t in toolkits]
        lines += table_rows("< < < <", [head, *cells], wrap=True)
    for entry in matrix.exclude:
        lines += hanging_lines("", f"left out: {entry.variant} ({entry.reason})")
    return "\n".join(lines) + "\n"


_GitlabJob = dict[str, object]

_NOX = "python3 -m pip install --require-hashes --requirement .github/actions/nox/requirements.txt"
_KERNELS = "dist/kernels"
_KEPT = "1 week"
_MOST_NEEDS = 50
"""The most jobs that GitLab lets one job need."""


def _gitlab(plan: MatrixPlan) -> str:
    matrix, jobs = plan.matrix, dict[str, _GitlabJob]()
    for build in kernel_builds(matrix, plan.variants):
        for name, shard in build.artifacts(plan.shards).items():
            jobs[name] = _gitlab_kernels_job(matrix, build, shard)
    for variant in plan.variants:
        linked = _linked_artifacts(plan, variant)
        if len(linked) > _MOST_NEEDS:
            raise UsageError(
                f"{variant.id}: is linked from {len(linked)} jobs; expected at most {_MOST_NEEDS}, "
                "which GitLab lets a job need: lower --shards, or build.shards of matrix.yaml"
            )
        jobs[f"wheel-{variant.id}"] = _build_job(matrix, variant, linked)
    for variant in plan.variants:
        jobs[f"smoke-{variant.id}"] = _smoke_job(matrix, variant)
    jobs["assemble"] = _assemble_job(plan.selection)
    pipeline = {
        "stages": ["kernels", "wheels", "smoke", "assemble"],
        "default": {"before_script": [_NOX], "interruptible": True},
        **jobs,
    }
    return json.dumps(pipeline, indent=1) + "\n"


def _gitlab_job(
    stage: str, runner: str | tuple[str, ...], script: str, **more: object
) -> _GitlabJob:
    tags = [runner] if isinstance(runner, str) else list(runner)
    return {"stage": stage, "tags": tags, "script": [script], "timeout": "3h", **more}


def _gitlab_kernels_job(matrix: Matrix, build: KernelBuild, shard: Shard) -> _GitlabJob:
    return _gitlab_job(
        "kernels",
        build_runner(matrix, build.variants[0]),
        'nox -s kernels -- --container --twice --shard "$SHARD" "$KERNELS"',
        variables={"SHARD": str(shard), "KERNELS": build.id},
        artifacts={"paths": [_KERNELS], "expire_in": _KEPT},
    )


def _build_job(matrix: Matrix, variant: Variant, linked: Sequence[str]) -> _GitlabJob:
    link = f" --kernels {_KERNELS} --kernels-only" if linked else ""
    kept = ("*.whl", "bundled/*.whl", ".torchwheel/$VARIANT.json", "smoke/$VARIANT.json")
    return _gitlab_job(
        "wheels",
        build_runner(matrix, variant),
        f'nox -s wheels -- --container --locked --twice{link} "$VARIANT"',
        variables={"VARIANT": variant.id},
        needs=list(linked),
        artifacts={"paths": [f"dist/{name}" for name in kept], "expire_in": _KEPT},
    )


def _smoke_job(matrix: Matrix, variant: Variant) -> _GitlabJob:
    # A folder of its own: the build's record of the same name is in dist.
    record = "tried/$VARIANT/smoke/$VARIANT.json"
    return _gitlab_job(
        "smoke",
        smoke_runner(matrix, variant),
        f'nox -s smoke -- --locked --record "{record}" dist/*.whl',
        variables={"VARIANT": variant.id},
        needs=[f"wheel-{variant.id}"],
        artifacts={"paths": [record], "expire_in": _KEPT},
    )


def _assemble_job(selection: Sequence[str]) -> _GitlabJob:
    chosen = {f"SELECTION_{number}": word for number, word in enumerate(selection, start=1)}
    words = " ".join(f'--selection "${name}"' for name in chosen)
    return {
        "stage": "assemble",
        # Without `needs` it gets the artifacts of all jobs.
        "script": [f"nox -s assemble -- {words} --out release dist tried/*"],
        "variables": chosen,
        "artifacts": {"paths": ["release"], "expire_in": _KEPT},
    }


_RENDERERS: Mapping[MatrixFormat, Callable[[MatrixPlan], str]] = {
    "table": _table,
    "json": _json,
    "github": _github,
    "kernels": _github_kernels,
    "gitlab": _gitlab,
}
