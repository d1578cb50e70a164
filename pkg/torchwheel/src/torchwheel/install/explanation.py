"""What `torchwheel install` found, as text and as JSON."""

import json
from collections.abc import Iterator
from typing import Any

from torchwheel.index.needs import WheelNeeds
from torchwheel.install.choose import Judgement, torch_to_install
from torchwheel.install.environment import TargetEnvironment
from torchwheel.install.page import OfferedWheel
from torchwheel.install.plan import Ranking
from torchwheel_runtime.arch.model import BRANDS
from torchwheel_runtime.doctor.remedies import PYTORCH
from torchwheel_runtime.text import escape, hanging_lines, hide_secrets, join_names, size_text
from torchwheel_runtime.validate.at_load import describe_driver
from torchwheel_runtime.validate.torch_rules import describe_torch

SCHEMA = 2


def ranking_text(ranking: Ranking, environment: TargetEnvironment, *, why: bool) -> str:
    """The facts of the machine, the wheel that is taken, and with `why` every other one."""
    fits = f"wheels: {len(ranking.judgements)}, of which fit: {len(ranking.accepted)}"
    lines = [*_facts(environment), *_row("index", f"{hide_secrets(ranking.url)}: {fits}")]
    if ranking.accepted:
        lines += _wheel_lines("takes", ranking.accepted[0])
    if why:
        for accepted in ranking.accepted[1:]:
            lines += _row("fits", escape(accepted.candidate.file))
        for rejected in ranking.rejected:
            lines += _row("rejected", escape(rejected.candidate.file))
            for reason in rejected.reasons:
                lines += hanging_lines(" " * 13, reason.line)
    return "\n".join(lines)


def _facts(environment: TargetEnvironment) -> Iterator[str]:
    own = environment.implementation
    name = "Python" if own == "CPython" else own
    yield from _row(name, f"{environment.python}, {environment.program}")
    glibc = f", glibc {environment.glibc}" if environment.glibc else ""
    yield from _row("system", f"{environment.platform}{glibc}")
    torch = environment.torch
    text = describe_torch(torch).removeprefix("torch ") if torch else "none"
    yield from _row("torch", text)
    driver, problem = environment.driver, environment.driver_problem
    text = describe_driver(driver).removeprefix("driver ") if driver else f"none: {problem}"
    yield from _row("driver", text)
    for gpu in environment.gpus:
        yield from _row("GPU", f"{gpu.index}: {gpu.name}, {gpu.arch}")


def _row(name: str, text: str) -> list[str]:
    return hanging_lines(f"{name:<11}", escape(text))


def _wheel_lines(name: str, accepted: Judgement) -> Iterator[str]:
    candidate = accepted.candidate
    size = f", {size_text(candidate.size)}" if candidate.size is not None else ""
    yield from _row(name, f"{candidate.file}{size}")
    yield from _row("  needs", _needs_text(accepted.needs, candidate))
    for note in accepted.notes:
        yield from _row("  note", note.line)


def _needs_text(needs: WheelNeeds, candidate: OfferedWheel) -> str:
    kernels = [
        f"{BRANDS[one.backend]} {one.release}".rstrip()
        + (f" for {' '.join(map(str, one.archs))}" if one.archs else "")
        for one in needs.kernels
    ]
    other = "" if candidate.described else (candidate.said.other or "").upper()
    parts = [" or ".join(f"torch{one}" for one in needs.torch), join_names(kernels) or other]
    text = "; ".join(part for part in parts if part)
    if candidate.described:
        return text or "no torch"
    return f"{text}, by its name and metadata" if text else "unknown: its name says nothing"


def none_fits(ranking: Ranking) -> str:
    """One line: no wheel fits, and why the closest does not."""
    if not ranking.judgements:
        return f"{ranking.url}: expected wheels of {ranking.project}, found none"
    closest = min(ranking.rejected, key=lambda one: (len(one.reasons), one.candidate.file))
    for_torch = [one for one in ranking.rejected if {why.rule for why in one.reasons} == {"torch"}]
    for_torch.sort(key=lambda one: one.candidate.version, reverse=True)
    found = torch_to_install(for_torch)
    remedy = f"; with another torch one fits: {_torch_command(*found)}" if found else ""
    return (
        f"{ranking.project}: expected a wheel that fits, found none of {len(ranking.judgements)}; "
        f"the closest is {closest.candidate.file}: {closest.reasons[0].line}{remedy} "
        "(--why lists all)"
    )


def no_torch(ranking: Ranking) -> str | None:
    """One line: the torch to install first; None if the best wheel is known to need none."""
    found = torch_to_install(ranking.accepted)
    if found is None:
        return None
    wheel = ranking.accepted[0].candidate.file
    return (
        f"{ranking.project}: expected torch{found[0]}, for {wheel}; found no torch, which this "
        f"command never installs; {_torch_command(*found)}, then run again"
    )


def _torch_command(torch: str, group: str | None) -> str:
    index = f" --index-url {PYTORCH}/{group}" if group else ""
    return f"`pip install 'torch{torch}'{index}`"


def ranking_json(ranking: Ranking, environment: TargetEnvironment) -> str:
    """One object, byte-stable for equal facts."""
    torch, driver = environment.torch, environment.driver
    machine = {
        "python": environment.python,
        "program": str(environment.program),
        "platform": environment.platform,
        "glibc": environment.glibc,
        "torch": torch
        and {"version": torch.version, "cuda": torch.cuda, "hip": torch.hip, "rocm": torch.rocm},
        "driver": driver and {"backend": driver.backend, "version": driver.version},
        "gpus": [
            {"index": gpu.index, "name": gpu.name, "arch": str(gpu.arch)}
            for gpu in environment.gpus
        ],
    }
    chosen = ranking.accepted[0] if ranking.accepted else None
    document = {
        "schema": SCHEMA,
        "project": ranking.project,
        "index": hide_secrets(ranking.url),
        "machine": machine,
        "chosen": chosen and _wheel_json(chosen),
        "wheels": [_wheel_json(one) for one in (*ranking.accepted, *ranking.rejected)],
    }
    return json.dumps(document, indent=1)


def _wheel_json(judgement: Judgement) -> dict[str, Any]:
    candidate = judgement.candidate
    return {
        "file": candidate.file,
        "version": str(candidate.version),
        "url": hide_secrets(candidate.url),
        "sha256": candidate.sha256,
        "described": candidate.described,
        "accepted": not judgement.reasons,
        "notes": [] if judgement.reasons else [one.line for one in judgement.notes],
        "reasons": [
            {"rule": one.rule, "expected": one.expected, "found": one.found}
            for one in judgement.reasons
        ],
    }
