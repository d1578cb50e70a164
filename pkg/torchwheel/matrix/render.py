"""Prints variants as a table, as JSON or as a GitHub `strategy.matrix`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchwheel.matrix.kernel_builds import KernelBuild, kernel_builds
from torchwheel.matrix.runners import build_runner, gpu_runner, smoke_runner
from torchwheel.matrix.sections import Matrix, Toolkit
from torchwheel.matrix.variants import Variant, resolve
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import hanging_lines, table_rows

MatrixFormat = Literal["table", "json", "github", "kernels"]

_MOST_JOBS = 256
"""The most jobs that GitHub runs of one strategy."""


def matrix_text(
    matrix: Matrix, variants: Sequence[Variant], form: MatrixFormat, shards: int = 1
) -> str:
    """The variants in one of the forms, byte-stable, ending with a newline.

    The form "kernels" has the kernels that they link: a job for each of the `shards` of a toolkit.
    """
    if form == "table":
        return _table(matrix, variants)
    if form == "json":
        return json.dumps([_fields(variant) for variant in variants], indent=1) + "\n"
    if form == "kernels":
        include = [
            _kernels_job(matrix, build, name, shard)
            for build in kernel_builds(matrix, variants)
            for name, shard in build.artifacts(shards).items()
        ] or [_no_kernels_job(matrix, variants[0])]
    else:
        include = [_job(matrix, variant, shards) for variant in variants]
    if len(include) > _MOST_JOBS:
        jobs = "shards" if form == "kernels" else "variants"
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


def _kernel_artifacts(matrix: Matrix, variant: Variant, shards: int) -> str:
    """A pattern that matches the artifacts of the kernels that a variant links; empty for none."""
    builds = kernel_builds(matrix, [variant])
    names = [name for build in builds for name in build.artifacts(shards)]
    return f"{{{','.join(names)}}}" if len(names) > 1 else "".join(names)


def _job(matrix: Matrix, variant: Variant, shards: int) -> _Job:
    job: _Job = {
        key: ";".join(value) if isinstance(value, tuple) else value or ""
        for key, value in _fields(variant).items()
    }
    job["python"] = variant.python or ""
    job["kernels"] = _kernel_artifacts(matrix, variant, shards)
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


def _table(matrix: Matrix, variants: Sequence[Variant]) -> str:
    lines = table_rows("< < < < <", _variant_rows(variants))
    lines += [f"{len(variants)} of {len(resolve(matrix))} variants", ""]
    toolkits = dict.fromkeys(v.toolkit for v in variants if v.toolkit)
    if toolkits:
        lines += table_rows("< < < <", _toolkit_rows(toolkits), wrap=True)
    for entry in matrix.exclude:
        lines += hanging_lines("", f"left out: {entry.variant} ({entry.reason})")
    return "\n".join(lines) + "\n"


def _variant_rows(variants: Iterable[Variant]) -> Iterator[Sequence[str]]:
    yield ("variant", "abi", "torch", "python", "platform")
    for variant in variants:
        yield (variant.id, variant.abi, variant.torch_range, variant.python_tag, variant.platform)


def _toolkit_rows(toolkits: Iterable[Toolkit]) -> Iterator[Sequence[str]]:
    yield ("toolkit", "release", "source", "archs")
    for toolkit in toolkits:
        yield (
            toolkit.name,
            str(toolkit.release),
            toolkit.source,
            " ".join(map(str, toolkit.archs)),
        )
