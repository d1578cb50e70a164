"""The command line: `torchwheel COMMAND`.

Each command imports what it needs when it runs: `smoke --here` and `check` must work on a GPU
machine that has none of the build's dependencies.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torchwheel.arguments import parser
from torchwheel.console import Terminal, end_quietly, fail, flush_output
from torchwheel.errors import TorchwheelError, UsageError

Command = Callable[[argparse.Namespace], int]

EXTRA = 'run `pip install "torchwheel[pipeline]"`'


def _matrix(options: argparse.Namespace) -> int:
    from torchwheel.matrix.load import load
    from torchwheel.matrix.render import matrix_text, tell_github
    from torchwheel.matrix.variants import select

    matrix = load(options.matrix)
    variants = select(matrix, options.variant or ["all"])
    text = matrix_text(matrix, variants, options.form)
    if options.output:
        if options.form != "github":
            raise UsageError("--output goes with --github")
        tell_github(text, options.output)
    print(text, end="")
    return 0


def _wheels(options: argparse.Namespace) -> int:
    from torchwheel.pipeline.cibuildwheel import show_options
    from torchwheel.pipeline.records import WheelsRequest, last_request
    from torchwheel.pipeline.wheels import wheels

    request = WheelsRequest(
        tuple(options.variant),
        tuple(options.archs.replace(";", " ").split()),
        options.container,
    )
    if options.resume:
        if request != WheelsRequest():
            raise UsageError("--resume repeats the last call; give it alone, or name variants")
        request = last_request(options.dist)
    with Terminal().running() as progress:
        if options.show:
            print(show_options(options.matrix, request, options.dist, progress), end="")
            return 0
        text, status = wheels(
            options.matrix,
            request,
            options.dist,
            progress,
            launcher=not options.no_launcher,
            at_once=options.at_once,
            twice=options.twice,
        )
    print(text)
    return status


def _images(options: argparse.Namespace) -> int:
    from torchwheel.pipeline.images import images

    with Terminal().running() as progress:
        print(images(options.matrix, options.variant, progress))
    return 0


def _base_images(options: argparse.Namespace) -> int:
    from torchwheel.pipeline.images import base_images

    with Terminal().running() as progress:
        print(base_images(options.matrix, options.variant, progress))
    return 0


def _build(options: argparse.Namespace) -> int:
    from torchwheel.pipeline.frontend import find_launcher
    from torchwheel.sdist.make import closing_text, make
    from torchwheel.sdist.request import SdistRequest
    from torchwheel.toolkit.cache import cache_folder

    request = SdistRequest(
        source=options.source,
        dist=options.dist,
        torch=options.torch,
        toolkit=options.toolkit,
        archs=options.archs,
        cpu=options.cpu,
        imports=tuple(options.imports),
        requires=tuple(options.requires),
        max_size_mib=options.max_size,
        launcher=() if options.no_launcher else find_launcher(),
    )
    with Terminal().running() as progress:
        record = make(request, cache_folder(), progress)
    print(closing_text(record, options.dist))
    return 0


def _check(options: argparse.Namespace) -> int:
    from torchwheel.check.facts import Limits
    from torchwheel.check.gates import all_passed, gates_text, run_gates

    status = 0
    for wheel in options.wheel:
        results = run_gates(wheel, Limits(max_size_mib=options.max_size))
        print(f"{wheel.name}\n{gates_text(results)}", end="")
        if not all_passed(results):
            status = 1
    return status


def _smoke(options: argparse.Namespace) -> int:
    from torchwheel.smoke.record import record_text
    from torchwheel.smoke.requirements import bundled_with
    from torchwheel.smoke.run import smoke
    from torchwheel.toolkit.cache import cache_folder

    tests, torch = options.tests, options.torch
    requires: tuple[str, ...] = ("pytest",)
    if tests is None:
        # Only then: an offline GPU machine need not have what reads the matrix.
        from torchwheel.inspect.wheel import read_wheel
        from torchwheel.matrix.load import load
        from torchwheel.smoke.environment import usual_torch

        wanted = load(options.matrix).smoke
        tests, requires = options.matrix.parent / wanted.tests, wanted.requires
        torch = torch or usual_torch(read_wheel(options.wheel), wanted.torch)
    record = options.record or Path("dist", "smoke", f"{options.wheel.name}.json")
    with Terminal().running() as progress:
        found = smoke(
            options.wheel,
            tests=tests,
            torch=torch,
            requires=requires,
            bundled=bundled_with(options.wheel),
            here=options.here,
            record=record,
            junit=options.junit or record.with_suffix(".xml"),
            cache=cache_folder(),
            progress=progress,
        )
    print(f"{record_text(found)}record: {record}")
    return int(not found.ok)


def _compat(options: argparse.Namespace) -> int:
    from torchwheel.matrix.load import load
    from torchwheel.smoke.compat import compat, compat_text

    matrix = load(options.matrix)
    with Terminal().running() as progress:
        rows = compat(
            options.wheel,
            options.torch or [f"{minor}.0" for minor in matrix.torch],
            tests=options.matrix.parent / matrix.smoke.tests,
            requires=matrix.smoke.requires,
            record=options.record,
            progress=progress,
        )
    print(f"{compat_text(rows)}record: {options.record}")
    return int(not all(row.ok for row in rows))


def _assemble(options: argparse.Namespace) -> int:
    from torchwheel.release.assemble import assemble

    with Terminal().running() as progress:
        text = assemble(
            options.matrix,
            options.selection or ["release"],
            options.folder,
            options.out,
            progress,
            version=options.version,
            earlier=options.earlier,
        )
    print(f"{text}\n\nassembled in {options.out}")
    return 0


def _serve(options: argparse.Namespace) -> int:
    from torchwheel.index.serve import serve

    serve(options.folder, options.port)
    return 0


def _toolkit(options: argparse.Namespace) -> int:
    from torchwheel.matrix.load import load
    from torchwheel.text import nearest
    from torchwheel.toolkit.cache import cache_folder
    from torchwheel.toolkit.host import host_compiler
    from torchwheel.toolkit.provide import provide

    matrix = load(options.matrix)
    if options.name not in matrix.toolkits:
        raise UsageError(
            f"no toolkit {options.name!r} in {options.matrix}; "
            f"{nearest(options.name, matrix.toolkits)}"
        )
    wanted = matrix.toolkit(options.name)
    with Terminal().running() as progress:
        root = provide(
            wanted, wanted.archs, matrix.platforms[0], host_compiler(), cache_folder(), progress
        )
    print(f"CUDA_HOME={root}")
    return 0


def _cache(options: argparse.Namespace) -> int:
    from torchwheel.jit.folder import jit_folder
    from torchwheel.jit.report import cache_list, cache_prune

    if options.action == "list":
        print(cache_list(jit_folder()))
    else:
        print(
            cache_prune(
                jit_folder(),
                older_than=options.older_than,
                everything=options.everything,
                max_size=options.max_size,
            )
        )
    return 0


def _jit(options: argparse.Namespace) -> int:
    import importlib

    from torchwheel import runtime

    try:
        importlib.import_module(options.package)
    except ImportError as error:
        raise UsageError(
            f"{options.package}: cannot be imported: {error}; `torchwheel doctor` says more"
        ) from error
    status = runtime.build_now(options.package)
    if status is None:
        raise UsageError(
            f"{options.package}: is no extension that torchwheel's run-time half loads"
        )
    for one in status.operators:
        print(f"{one.operator:<20} {one.reason}")
    return int(not status.native)


def _new(options: argparse.Namespace) -> int:
    from torchwheel.scaffold.new import new

    folder = new(options.name, options.folder)
    print(f"{folder}: written. Next:\n  cd {folder}\n  pip install nox\n  nox")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from torchwheel.doctor.run import run

    return run(options)


_COMMANDS: Mapping[str, Command] = {
    "matrix": _matrix,
    "wheels": _wheels,
    "images": _images,
    "base-images": _base_images,
    "build": _build,
    "check": _check,
    "smoke": _smoke,
    "compat": _compat,
    "assemble": _assemble,
    "index": _serve,
    "toolkit": _toolkit,
    "doctor": _doctor,
    "cache": _cache,
    "jit": _jit,
    "new": _new,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 something failed, 2 the call or matrix is wrong."""
    options = parser().parse_args(argv)
    try:
        return flush_output(_COMMANDS[options.command](options))
    except TorchwheelError as error:
        if options.debug:
            raise
        fail(str(error))
        return error.status
    except ModuleNotFoundError as error:
        # An extension brings what its import needs; what builds wheels is an extra.
        missing = (error.name or "").partition(".")[0]
        if options.debug or missing in ("", "torchwheel"):
            raise
        fail(f"{options.command} needs {missing}: {EXTRA}")
        return 1
    except BrokenPipeError:
        return end_quietly()
    except KeyboardInterrupt:
        fail("stopped; run again to go on")
        return 1


if __name__ == "__main__":
    sys.exit(main())
