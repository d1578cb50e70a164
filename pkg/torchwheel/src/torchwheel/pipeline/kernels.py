"""`torchwheel kernels`: compiles the kernels of toolkits once, for all variants that link them."""

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torchwheel.matrix.kernel_builds import KernelBuild, compiled_variants, select_kernels
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.build_records import BuildCall
from torchwheel.pipeline.executors import compiler_of
from torchwheel.pipeline.inputs import Run
from torchwheel.pipeline.kernel_artifacts import (
    KernelInputs,
    Manifest,
    folder_name,
    read_artifact,
    verify_objects,
    write_manifest,
)
from torchwheel.pipeline.on_host import container_reason
from torchwheel.pipeline.variant import elsewhere, inputs_of_kernels
from torchwheel.pipeline.wheels import (
    at_work,
    can_build_twice,
    engine_for,
    jobs_of,
    open_run,
    with_archs,
)
from torchwheel_runtime.builder.objects import MANIFEST, CompiledObject, ObjectList
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import explain_full_disk, make_folder_atomically
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.lock import hold_lock, say_waiting
from torchwheel_runtime.shards import Shard


@dataclasses.dataclass(frozen=True)
class KernelsRequest(BuildCall):
    """One call of `torchwheel kernels`. Each field is the option of its name."""

    toolkits: tuple[str, ...] = ()
    out: Path = Path("dist/kernels")
    shard: Shard = dataclasses.field(default_factory=Shard)


def kernels(request: KernelsRequest, progress: Progress) -> str:
    """Compile the kernels that `request` names into artifacts; returns a line for each."""
    matrix = load(request.matrix)
    builds = select_kernels(matrix, request.toolkits)
    if request.archs:
        linking = [variant for build in builds for variant in build.variants]
        matrix = with_archs(matrix, linking, request.archs)
        builds = select_kernels(matrix, request.toolkits)
    compiled = [variant for build in builds for variant in compiled_variants(matrix, build)]
    engine = engine_for(request, matrix, compiled, progress)
    request = dataclasses.replace(request, twice=request.twice and can_build_twice(matrix))
    out = Path(os.path.realpath(request.out))
    out.mkdir(parents=True, exist_ok=True)
    run = open_run(request, matrix, out, engine, progress)
    run = dataclasses.replace(run, jobs=jobs_of(compiled))
    busy = say_waiting(progress.say, f"another run writes to {out}")
    with hold_lock(out / ".lock", busy), at_work(run) as run:
        return "\n".join(_bring_up_to_date(run, build, request) for build in builds)


def _bring_up_to_date(run: Run, build: KernelBuild, request: KernelsRequest) -> str:
    variants = _variants_here(run, build)
    inputs = inputs_of_kernels(build, compiler_of(run, variants[0]))
    folder = run.dist / folder_name(inputs, request.shard)
    if _is_complete(folder, inputs, request):
        return f"kept      {folder}"
    with explain_full_disk(run.dist), make_folder_atomically(folder) as temporary:
        objects = compile_objects(run, variants, request.shard, temporary)
        if request.twice:
            _compile_again(run, variants, request.shard, objects)
        manifest = Manifest(inputs, str(request.shard), request.twice, tuple(objects))
        write_manifest(temporary, manifest)
    return f"compiled  {folder}: {len(objects)} objects"


def _variants_here(run: Run, build: KernelBuild) -> Sequence[Variant]:
    """The variants that are compiled with the kernels: on the host those that it can build."""
    variants = compiled_variants(run.matrix, build)
    here = [variant for variant in variants if container_reason(variant, run.engine) is None]
    if not here:
        reason = container_reason(variants[0])
        raise UsageError(f"{build.id}: {reason} is built in a container only: add --container")
    return here


def _is_complete(folder: Path, inputs: KernelInputs, request: KernelsRequest) -> bool:
    """Whether `folder` has what is asked for already."""
    try:
        artifact = read_artifact(folder)
        verify_objects(artifact)
    except TorchwheelError:
        return False
    manifest = artifact.manifest
    return (
        manifest.inputs == inputs
        and manifest.shard == str(request.shard)
        and (manifest.compiled_twice or not request.twice)
    )


def compile_objects(
    run: Run, variants: Sequence[Variant], shard: Shard, folder: Path
) -> list[CompiledObject]:
    """Compile a shard of the objects into `folder`; returns them, each once and in one order."""
    found: dict[tuple[str, str], CompiledObject] = {}
    for variant in variants:
        made_in = tempfile.TemporaryDirectory(prefix="torchwheel-kernels-")
        with run.progress.task(variant.id), made_in as scratch:
            made = compiler_of(run, variant).compile_shard(shard, Path(scratch).resolve())
        for entry in read_json(made / MANIFEST, ObjectList).objects:
            known = found.setdefault((entry.group, entry.output), entry)
            if known.sha256 != entry.sha256:
                raise _not_reproducible(entry)
            shutil.copyfile(made / entry.file, folder / entry.file)
    return [found[key] for key in sorted(found)]


def _compile_again(
    run: Run, variants: Sequence[Variant], shard: Shard, first: Sequence[CompiledObject]
) -> None:
    """Compile again, elsewhere and without caches; raise if an object differs."""
    with elsewhere(run, variants[0]) as again:
        objects = again.source.parent / "objects"
        objects.mkdir()
        second = compile_objects(again, variants, shard, objects)
    for one, other in zip(first, second, strict=True):
        if one != other:
            raise _not_reproducible(one)


def _not_reproducible(entry: CompiledObject) -> TorchwheelError:
    return TorchwheelError(
        f"not reproducible: two compiles of {entry.output} ({entry.group}) have other bytes"
    )
