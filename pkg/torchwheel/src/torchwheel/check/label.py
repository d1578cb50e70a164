"""Gate `label`: what the label of a wheel promises a machine is true of the code in it."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel.check.named_claims import NamedCase
from torchwheel.check.named_gates import Row
from torchwheel.inspect.wheel import PackageMetadata
from torchwheel_runtime.arch.model import Arch, backend_of
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.variant_format import (
    ARCH_FEATURE,
    FEATURES,
    FILE,
    LOWER_BOUND,
    NAMESPACES,
    NULL,
    UPPER_BOUND,
    Properties,
    code_values,
    properties_of,
    ptx_release,
)
from torchwheel_runtime.versions import major_version, version_numbers


def label(facts: WheelFacts, _: Limits) -> str:
    """A label is the same in name, variant.json and claims, and says what its libraries have."""
    wheel, claims = facts.wheel.read(), facts.claims
    if fault := _fault_of_label(wheel, claims.label):
        raise GateError(fault)
    if claims.label is None or wheel.labels is None:
        return "no label"
    code = facts.gpu_code.read()
    modules = [module for of_library in code.values() for module in of_library]
    found = wheel.labels[claims.label]
    expected = {
        name: {**features, ARCH_FEATURE[name]: _values((m.kind, m.arch) for m in modules)[name]}
        for name, features in properties_of(_with_ptx_releases(claims, code)).items()
    }
    if claims.label == NULL and modules:
        raise GateError(f"label {NULL}: GPU code for {modules[0].arch.binary_name}; none expected")
    if fault := _difference(expected, found):
        raise GateError(fault)
    return f"{claims.label}: {properties_text(found)}"


def _fault_of_label(wheel: PackageMetadata, claimed: str | None) -> str | None:
    """Where a wheel's places name different labels."""
    labels = tuple(wheel.labels or ())
    if len(labels) > 1:
        return f"{FILE}: one label expected, got {join_names(labels)}"
    said = {"torchwheel.json": claimed, FILE: next(iter(labels), None)}
    if wheel.named:
        said = {"the file name": wheel.named.label, **said}
    if len(set(said.values())) == 1:
        return None
    return "one label expected, got " + join_names(
        f"{one or 'none'} of {place}" for place, one in said.items()
    )


def _with_ptx_releases(claims: Claims, code: Mapping[str, tuple[GpuCode, ...]]) -> Claims:
    """The claims with the CUDA whose driver compiles the PTX of each library, where it has some."""

    def release(file: str, claimed: str | None) -> str | None:
        written = (module.ptx_version for module in code.get(file, ()))
        newest = max(filter(None, written), key=version_numbers, default=None)
        return (ptx_release(newest) if newest else None) or claimed

    parts = (
        dataclasses.replace(part, toolkit_version=release(part.file, part.toolkit_version))
        for part in claims.parts
    )
    return dataclasses.replace(claims, parts=tuple(parts))


def _values(code: Iterable[tuple[str, Arch]]) -> Mapping[str, tuple[str, ...]]:
    """The values of the archs of each namespace, of modules given by kind and arch."""
    found: dict[str, list[str]] = {namespace: [] for namespace in NAMESPACES.values()}
    for kind, arch in code:
        found[NAMESPACES[backend_of(arch)]] += code_values(kind, arch)
    return {namespace: tuple(sorted(set(values))) for namespace, values in found.items()}


def _difference(expected: Properties, found: Properties) -> str | None:
    for name in sorted({*expected, *found}):
        features, others = expected.get(name, {}), found.get(name, {})
        for feature in sorted({*features, *others}):
            wanted, got = (sorted(one.get(feature, ())) for one in (features, others))
            if wanted != got:
                says = " ".join(wanted) or "none"
                return f"{FILE}: {name} {feature}: {says} expected, got {' '.join(got) or 'none'}"
    return None


def properties_text(properties: Properties) -> str:
    """The properties of a label in one line."""
    texts = (
        f"{name} {feature} {' '.join(values)}"
        for name, features in properties.items()
        for feature, values in features.items()
    )
    return "; ".join(texts) or "no property"


def named_label(case: NamedCase) -> Iterator[Row]:
    """A label is the same in name and variant.json, and says what the libraries have."""
    facts = case.facts
    if fault := facts.faults.get("labels"):
        yield fault, "error", ""
        return
    claimed = facts.claims.label if facts.claims else next(iter(facts.labels or ()), None)
    if fault := _fault_of_label(facts, claimed):
        yield fault, "error", ""
        return
    if facts.labels is None:
        return
    for library in facts.libraries:
        if library.problem or library.targets_problem:
            yield "not judged: cannot be read", "error", library.name
        elif library.targets and claimed == NULL:
            yield f"the label {NULL} promises no GPU code, and there is some", "error", library.name
    for name, features in facts.labels[claimed or NULL].items():
        if unknown := features.keys() - FEATURES.get(name, ()):
            unjudged = join_names(sorted(unknown))
            yield f"not judged: {unjudged} of the provider {quote(name)}", "warning", ""
        if name in FEATURES:
            yield from _archs(case, name, features)
            yield from _bounds(case, features)


def _archs(case: NamedCase, name: str, features: Mapping[str, tuple[str, ...]]) -> Iterator[Row]:
    """The archs are those of the code; one that is bound to its chip counts as its number."""
    targets = [target for library in case.facts.libraries for target in library.targets]
    code = ((one.kind, one.arch) for one in targets if one.is_code or one.kind == "ptx")
    found = set(map(_usual, _values(code)[name]))
    feature = ARCH_FEATURE[name]
    if feature not in features:
        yield f"the label names no {feature}, so every machine may take it", "warning", ""
        return
    named = set(map(_usual, features[feature]))
    if missing := sorted(named - found):
        yield f"{feature} has {join_names(missing)}, and no library has such code", "error", ""
    if unnamed := sorted(found - named):
        # A split wheel has PTX for 8.0 where a GPU of 9.0 has nothing better, and is not for 8.0.
        yield f"{feature} lacks {join_names(unnamed)}, which its libraries have", "warning", ""


def _usual(value: str) -> str:
    number, dash, kind = value.partition("_")
    return f"{number.rstrip('af') if dash else number}{dash}{kind}"


def _bounds(case: NamedCase, features: Mapping[str, tuple[str, ...]]) -> Iterator[Row]:
    """The drivers that the bounds admit run the runtime; where its release is known."""
    lower, upper = features.get(LOWER_BOUND, ()), features.get(UPPER_BOUND, ())
    runtimes = [one for library in case.facts.libraries for one in library.runtimes]
    known = [one.version for one in runtimes if one.backend == "cuda" and one.version]
    release = case.claims.cuda or max(known, key=version_numbers, default=None)
    for bound in lower:
        if release and version_numbers(bound) < version_numbers(major_version(release)):
            yield f"{LOWER_BOUND} is {bound}, and its runtime is of CUDA {release}", "error", ""
        for end in upper:
            if version_numbers(end) <= version_numbers(bound):
                yield f"no driver is for CUDA from {bound} on and before {end}", "error", ""
