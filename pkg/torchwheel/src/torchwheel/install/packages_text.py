"""What `torchwheel doctor --all` prints: 80 columns for a person, JSON for a program."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchwheel.findings import finding_json
from torchwheel.install.environment import TargetEnvironment
from torchwheel_runtime.doctor.native import NativeLibrary
from torchwheel_runtime.doctor.report import row, unwrapped_row
from torchwheel_runtime.text import WIDTH, join_names
from torchwheel_runtime.validate.at_load import describe_driver
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import other_wheel
from torchwheel_runtime.versions import version_numbers

if TYPE_CHECKING:
    from torchwheel.install.packages import PackageVerdict

SCHEMA = 1
_NAMED = 2
"""Findings of a package that are shown without --verbose."""


def report_lines(
    verdicts: Sequence["PackageVerdict"],
    here: TargetEnvironment,
    there: TargetEnvironment,
    own: Iterable[Finding],
    *,
    quiet: bool,
    verbose: bool,
) -> Iterator[str]:
    """The machine, what is wrong, what works; with `quiet` what is wrong alone.

    `own` are the findings about torch itself.
    """
    if not quiet:
        yield from row("now", _machine_text(here))
        yield from row("then", _machine_text(there)) if there != here else ()
        yield "-" * WIDTH
    for finding in own:
        yield from row("wrong", finding.fact)
        yield from unwrapped_row("to fix it", finding.fix)
    for state in ("breaks", "wrong"):
        for one in verdicts:
            if one.state == state:
                yield from _wrong_lines(one, there, verbose=verbose)
    if not quiet:
        yield from _well_lines(verdicts)


def _wrong_lines(
    one: "PackageVerdict", there: TargetEnvironment, *, verbose: bool
) -> Iterator[str]:
    facts = list(dict.fromkeys(finding.fact for finding in one.then))
    shown = facts if verbose else facts[:_NAMED]
    yield from row(one.state, f"{one.package.title}: {shown[0]}")
    for fact in shown[1:]:
        yield from row("also", fact)
    if len(facts) > len(shown):
        yield from row("also", f"{len(facts) - len(shown)} more, which --verbose shows")
    if one.fits:
        yield from row("fits", _fits_text(one))
    yield from unwrapped_row("to fix it", _fix(one, there))


def _fix(one: "PackageVerdict", there: TargetEnvironment) -> str:
    """What to install instead: what the index has, else the fix of the first cause.

    Where that comes of torch, the table of torch's symbols knows a better one.
    """
    first, torch = one.then[0], there.torch
    if one.offer:
        return one.offer
    if first.rule == "python":
        return f"install it with that Python's pip; its wheels must have one for {there.python}"
    of_torch = first.of_torch or first.rule in ("torch", "backend", "toolkit-torch")
    if torch is None or one.fits is None or not one.fits.minors or not of_torch:
        return first.fix
    minors = one.fits.minors
    best = torch.minor if torch.minor in minors else minors[-1]
    wheel = other_wheel(one.package.name)
    return f"take torch {best}{one.fits.kind}, which it fits, or {wheel} for torch {torch.version}"


def _well_lines(verdicts: Sequence["PackageVerdict"]) -> Iterator[str]:
    titles: dict[str, list[str]] = {}
    for one in verdicts:
        title = one.package.title
        if one.state == "fixed":
            yield from row("fixed", f"{title}, where today: {one.now[0].fact}")
        elif one.state == "works" and (one.fits or not all(map(_is_plain, one.package.natives))):
            yield from row("works", f"{title}, fits {_fits_text(one)}" if one.fits else title)
        elif one.state in ("works", "of torch"):
            titles.setdefault(one.state, []).append(title)
    if plain := titles.get("works"):
        yield from row("works", f"with nothing of torch or of GPUs: {join_names(plain)}")
    if brought := titles.get("of torch"):
        yield from row("of torch", f"pip replaces them with torch: {join_names(brought)}")


def _is_plain(native: NativeLibrary) -> bool:
    """Whether a library has no GPU code and needs nothing of torch."""
    return not (native.backend or native.uses_torch or native.problem or native.code_problem)


def _fits_text(one: "PackageVerdict") -> str:
    """E.g. "torch 2.10 to 2.13 for CUDA 12"; each minor where some between do not fit."""
    fits = one.fits
    if fits is None or not fits.minors:
        return f"no torch of PyPI or PyTorch{fits.kind if fits else ''}"
    numbers = [version_numbers(minor)[1] for minor in fits.minors]
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"torch {fits.minors[0]} to {fits.minors[-1]}{fits.kind}"
    return f"torch {join_names(fits.minors)}{fits.kind}"


def _machine_text(machine: TargetEnvironment) -> str:
    gpus = dict.fromkeys(f"{gpu.name} ({gpu.arch})" for gpu in machine.gpus)
    return join_names(
        (
            f"torch {machine.torch.version}" if machine.torch else "no torch",
            f"Python {machine.python}",
            describe_driver(machine.driver) if machine.driver else "no driver",
            *(gpus or ("no GPU",)),
            f"glibc {machine.glibc}" if machine.glibc else "a C library that is not glibc",
        )
    )


def report_json(
    verdicts: Iterable["PackageVerdict"],
    here: TargetEnvironment,
    there: TargetEnvironment,
    own: Iterable[Finding],
) -> str:
    """Byte-stable JSON without a final newline."""
    document = {
        "schema": SCHEMA,
        "now": _machine_json(here),
        "then": _machine_json(there),
        "findings": list(map(finding_json, own)),
        "packages": [
            {
                "name": one.package.name,
                "version": one.package.info.version if one.package.info else None,
                "state": one.state,
                "now": list(map(finding_json, one.now)),
                "then": list(map(finding_json, one.then)),
                "fits": one.fits and dataclasses.asdict(one.fits),
                "fix": _fix(one, there) if one.then else None,
                "libraries": [native.name for native in one.package.natives],
            }
            for one in verdicts
        ],
    }
    return json.dumps(document, indent=1)


def _machine_json(machine: TargetEnvironment) -> dict[str, Any]:
    torch, driver = machine.torch, machine.driver
    return {
        "torch": torch.version if torch else None,
        "python": machine.python,
        "driver": (driver.cuda or driver.version) if driver else None,
        "gpus": [str(gpu.arch) for gpu in machine.gpus],
        "glibc": machine.glibc,
    }
