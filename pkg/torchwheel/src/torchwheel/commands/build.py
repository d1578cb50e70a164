"""Commands that make wheels: matrix, wheels, kernels, images, base-images, build, split."""

import argparse
import dataclasses
import os
from pathlib import Path

from torchwheel_runtime.arguments import (
    GPU,
    LOCKED,
    MATRIX,
    PROGRESS,
    command,
    one_of,
    option,
    positive_number,
    request_of,
)
from torchwheel_runtime.console import Terminal, print_error
from torchwheel_runtime.errors import UsageError


def _arch_names(text: str) -> tuple[str, ...]:
    return tuple(text.replace(";", " ").split())


DIST = option("--dist", type=Path, default=Path("dist"), help="the output folder")
ARCHS = option(
    "--archs", type=_arch_names, default="", help='another arch list, e.g. "9.0;12.0+PTX" or gfx942'
)
NO_LAUNCHER = option(
    "--no-launcher", dest="launcher", action="store_false", help="compile without sccache"
)
IMAGES_FOR = option("variant", nargs="*", help="variants they are for (default: release)")


@command(
    "matrix",
    "Print the variants of the matrix.",
    MATRIX,
    option("variant", nargs="*", help="selection, variant id or pattern (default: all)"),
    one_of(
        option("--json", dest="form", action="store_const", const="json", default="table"),
        option("--github", dest="form", action="store_const", const="github"),
        option(
            "--gitlab",
            dest="form",
            action="store_const",
            const="gitlab",
            help="a child pipeline: kernels, wheels, smoke tests and the folder of a release",
        ),
        option(
            "--kernels",
            dest="form",
            action="store_const",
            const="kernels",
            help="as --github, of the kernels that the variants link: a job for each toolkit",
        ),
    ),
    GPU,
    option("--shards", type=positive_number, default=1, help="jobs for the kernels of a toolkit"),
    option(
        "--output",
        type=Path,
        help="append to this file the outputs of a step: matrix=… and kernels=…",
    ),
    examples=("matrix", "matrix 'cu130-*'", "matrix --json release"),
    page="reference/matrix.md",
    extra="pipeline",
)
def matrix(options: argparse.Namespace) -> int:
    """Print the variants as a table, as JSON or as the plan of a CI."""
    from torchwheel.matrix.load import load
    from torchwheel.matrix.render import MatrixPlan, append_github_output, matrix_text
    from torchwheel.matrix.variants import select, with_gpu_runners

    loaded = with_gpu_runners(load(options.matrix), options.gpu)
    selection = options.variant or ["all"]
    plan = MatrixPlan(loaded, select(loaded, selection), options.shards, selection)
    if options.output and options.form != "github":
        raise UsageError("--output goes with --github")
    text = matrix_text(plan, options.form)
    if options.output:
        kernels = matrix_text(plan, "kernels")
        append_github_output({"matrix": text, "kernels": kernels}, options.output)
    print(text, end="")
    return 0


@command(
    "wheels",
    "Build, repair, check, smoke-test and index wheels.",
    MATRIX,
    option(
        "variants",
        metavar="variant",
        nargs="*",
        help="selection, variant id or pattern (default: default)",
    ),
    DIST,
    ARCHS,
    NO_LAUNCHER,
    option("--container", action="store_true", help="build native variants in their images"),
    option(
        "--show", action="store_true", help="print what cibuildwheel would be told, build nothing"
    ),
    option(
        "--twice", action="store_true", help="build each again, elsewhere: the bytes must be equal"
    ),
    option(
        "--resume", action="store_true", help="repeat the last call, doing only what is missing"
    ),
    option(
        "--at-once",
        type=positive_number,
        help="variants, or parts of one, in work at a time (default: by cores and memory)",
    ),
    option(
        "--kernels",
        type=Path,
        help="link the kernels that `torchwheel kernels` wrote in this folder",
    ),
    option("--kernels-only", action="store_true", help="fail where these do not serve"),
    LOCKED,
    PROGRESS,
    examples=(
        "wheels",
        "wheels pure",
        "wheels cu130-stable --archs '9.0;12.0+PTX'",
        "wheels universal --container",
        "wheels --resume",
    ),
    page="reference/sessions.md",
    extra="pipeline",
)
def wheels(options: argparse.Namespace) -> int:
    """Build the variants; with --show print cibuildwheel's options instead."""
    from torchwheel.pipeline.build_records import Selection, WheelsRequest, last_request
    from torchwheel.pipeline.cibuildwheel import show_options
    from torchwheel.pipeline.wheels import wheels

    request = request_of(WheelsRequest, options, "show", "resume")
    if request.kernels_only and not request.kernels:
        raise UsageError("--kernels-only goes with --kernels FOLDER")
    if options.resume:
        if request.selection != Selection():
            raise UsageError("--resume repeats the last call; give it alone, or name variants")
        request = dataclasses.replace(request, **vars(last_request(request.dist)))
    with Terminal().live_line() as progress:
        if options.show:
            print(show_options(request, progress), end="")
            return 0
        text, status = wheels(request, progress)
    print(text)
    return status


@command(
    "kernels",
    "Compile the kernels of toolkits once, for all wheels that link them.",
    MATRIX,
    option(
        "toolkits",
        metavar="toolkit",
        nargs="+",
        help="toolkits, e.g. cu124 or cu130-linux_aarch64; of an ordinary project variants",
    ),
    option(
        "--out", type=Path, default=Path("dist/kernels"), help="the output folder (dist/kernels)"
    ),
    ARCHS,
    NO_LAUNCHER,
    option("--container", action="store_true", help="compile in the images of the toolkits"),
    option("--shard", default="1/1", help='compile a part of the files: "2/3" of three jobs'),
    option(
        "--twice", action="store_true", help="compile again, elsewhere: the bytes must be equal"
    ),
    PROGRESS,
    examples=("kernels cu130", "kernels cu124 --container --shard 1/2"),
    page="kernels.md",
    extra="pipeline",
)
def kernels(options: argparse.Namespace) -> int:
    """Compile the kernels and print the folders of their artifacts."""
    from torchwheel.pipeline.kernels import KernelsRequest, kernels
    from torchwheel_runtime.shards import parse_shard

    shard = parse_shard(options.shard, "--shard")
    with Terminal().live_line() as progress:
        text = kernels(request_of(KernelsRequest, options, shard=shard), progress)
    print(text)
    return 0


@command(
    "images",
    "Pull or build the container images that variants need.",
    MATRIX,
    IMAGES_FOR,
    option("--push", action="store_true", help="push them to the registry and pin their digests"),
    PROGRESS,
    examples=("images", "images cu124-stable"),
    page="containers.md",
    extra="pipeline",
)
def images(options: argparse.Namespace) -> int:
    """Pull or build the images and print their names."""
    from torchwheel.image.images import images

    with Terminal().live_line() as progress:
        print(images(options.matrix, options.variant, progress, push=options.push))
    return 0


@command(
    "base-images",
    "Make the base images here, with mmdebstrap.",
    MATRIX,
    IMAGES_FOR,
    PROGRESS,
    examples=("base-images",),
    page="containers.md",
    extra="pipeline",
)
def base_images(options: argparse.Namespace) -> int:
    """Make the base images and print their names."""
    from torchwheel.image.images import base_images

    with Terminal().live_line() as progress:
        print(base_images(options.matrix, options.variant, progress))
    return 0


@command(
    "build",
    "Build a wheel of any extension for one torch, and prove it.",
    option("source", help="an sdist, the folder of a project, or NAME==VERSION of the index"),
    DIST,
    option("--torch", help="the torch it is for, e.g. 2.11.0 (default: the newest)"),
    option("--toolkit", help="a CUDA release, e.g. 13.0 (default: torch's own)"),
    option(
        "--archs",
        help='arch list, e.g. "9.0;12.0+PTX" (default: TORCH_CUDA_ARCH_LIST, else those of torch)',
    ),
    option(
        "--archs-by",
        choices=("environment", "declared", "replaced"),
        help="the project leaves the archs to TORCH_CUDA_ARCH_LIST, hard-codes those of --archs, "
        "or hard-codes others, which are replaced (default: as its matrix.yaml or setup.py says)",
    ),
    option(
        "--allow",
        dest="allowed",
        metavar="GATE:LIBRARY:REASON",
        action="append",
        default=[],
        help='a gate\'s finding that is meant, e.g. "runtime:*/_C.so:calls the driver"; may be '
        "repeated",
    ),
    option("--cpu", action="store_true", help="build it without CUDA"),
    option(
        "--with",
        dest="requires",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        help="a build requirement that the project does not declare; may be repeated",
    ),
    option(
        "--import",
        dest="imports",
        metavar="NAME",
        action="append",
        default=[],
        help="what is imported to try the wheel; may be repeated (default: all it installs)",
    ),
    option(
        "--max-size",
        dest="max_size_mib",
        metavar="MAX_SIZE",
        type=positive_number,
        default=100,
        help="limit in MiB (default: 100)",
    ),
    NO_LAUNCHER,
    option(
        "--sandbox",
        choices=("auto", "require", "off"),
        default="auto",
        help="run the project's code without network and home (default: auto, where bwrap works)",
    ),
    option(
        "--env",
        dest="variables",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="a variable for the project's setup.py; may be repeated",
    ),
    option(
        "--config-setting",
        "--config-settings",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting for the project's build backend, as pip's; may be repeated",
    ),
    option(
        "--cache",
        metavar="DIR|URL",
        help="a compiler cache that builds share: a folder, redis://HOST:PORT or s3://BUCKET/PREFIX",
    ),
    one_of(
        option(
            "--plan",
            metavar="SHARDS",
            type=positive_number,
            nargs="?",
            const=1,
            help="compile nothing; print the compile steps of each shard (default: of one)",
        ),
        option("--shard", help='compile a part of the steps into the cache: "2/3" of three jobs'),
        option(
            "--from-shards",
            metavar="DIR",
            type=Path,
            help="link the objects of all shards, whose lists are in this folder",
        ),
        option(
            "--on",
            metavar="https://HOST:PORT",
            help="compile on the servers of this scheduler of sccache-dist, whose token is in "
            "TORCHWHEEL_CLUSTER_TOKEN",
        ),
    ),
    PROGRESS,
    examples=(
        "build torch-scatter==2.1.2",
        "build ./my-extension --torch 2.11.0 --archs 9.0",
        "build ./my-extension --cpu",
    ),
    page="build.md",
    extra="pipeline",
)
def build(options: argparse.Namespace) -> int:
    """Build a project that does not know torchwheel."""
    from torchwheel.check.facts import Limits
    from torchwheel.compilers.cluster import parse_scheduler
    from torchwheel.compilers.compiler_cache import parse_cache
    from torchwheel.pipeline.frontend import find_launcher
    from torchwheel.sdist.build import build_sdist, closing_text, compile_shard, plan_build
    from torchwheel.sdist.request import (
        SdistRequest,
        check_request,
        find_source,
        parse_allowed,
        parse_settings,
        parse_variables,
    )
    from torchwheel_runtime.shards import parse_shard
    from torchwheel_runtime.toolkit.cache import cache_folder

    shard = parse_shard(options.shard, "--shard") if options.shard else None
    if (shard or options.from_shards) and not options.cache:
        name = "--shard" if shard else "--from-shards"
        raise UsageError(f"{name}: the objects of shards are in a cache: add --cache")
    with Terminal().live_line() as progress:
        source = find_source(options.source, cache_folder(), progress)
    request = request_of(
        SdistRequest,
        options,
        *("plan", "shard", "from_shards", "allowed", "max_size_mib"),
        source=source,
        limits=Limits(options.max_size_mib, allowed=tuple(map(parse_allowed, options.allowed))),
        launcher=find_launcher(print_error) if options.launcher else (),
        variables=parse_variables(options.variables, os.environ),
        settings=parse_settings(options.settings),
        cache=parse_cache(options.cache) if options.cache else None,
        on=parse_scheduler(options.on, os.environ) if options.on else None,
    )
    check_request(request)
    with Terminal().live_line() as progress:
        if options.plan:
            print(plan_build(request, options.plan, cache_folder(), progress))
            return 0
        if shard:
            print(compile_shard(request, shard, cache_folder(), progress))
            return 0
        record = build_sdist(request, cache_folder(), progress, options.from_shards)
    print(closing_text(record, options.dist))
    return 0


@command(
    "split",
    "Make a smaller wheel for each group of GPUs of anybody's wheel, without its sources.",
    option(
        "wheels",
        metavar="wheel",
        type=Path,
        nargs="+",
        help="all wheels of a release that are to be split",
    ),
    option(
        "--label",
        dest="labels",
        metavar="NAME=ARCHS",
        action="append",
        default=[],
        help='a label and its GPUs, e.g. sm90=9.0 or "sm12x=12.0;12.1+PTX", where +PTX is for '
        "newer GPUs too; may be repeated (default: one for each major version)",
    ),
    option("--cuda", help="the CUDA release of a wheel that does not name it, e.g. 12.8"),
    option(
        "--out",
        type=Path,
        default=Path("dist/split"),
        help="the output folder, which must be new (dist/split)",
    ),
    PROGRESS,
    examples=(
        "split sgl_kernel-0.3.21-cp310-abi3-manylinux2014_x86_64.whl",
        "split dist/*.whl --label sm90=9.0 --label sm100=10.0+PTX",
    ),
    page="variants.md",
)
def split(options: argparse.Namespace) -> int:
    """Write the labelled wheels and print a table of them."""
    from torchwheel.split.labels import parse_labels
    from torchwheel.split.wheels import SplitRequest, split

    request = request_of(SplitRequest, options, labels=parse_labels(options.labels))
    with Terminal().live_line() as progress:
        text = split(request, progress)
    print(text)
    return 0
