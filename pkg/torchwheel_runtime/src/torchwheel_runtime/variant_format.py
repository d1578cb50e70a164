"""The names and files of labelled wheels, as PEP 825 and the providers of PEP 850 have them.

Both PEPs are drafts, so all that they decide is in this module. They call such a wheel a variant.
Here a variant is one build of the matrix, so the wheel goes by its label: a labelled wheel.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from torchwheel_runtime import data
from torchwheel_runtime.arch.model import (
    Arch,
    Backend,
    CudaArch,
    RocmArch,
    backend_of,
    parse_binary_name,
)
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.arch.runs import machine_code_runs_on, processors, ptx_runs_on
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.versions import major_version, minor_version, version_numbers

T = TypeVar("T")

FILE = "variant.json"
"""The file of a labelled wheel's dist-info folder."""
NULL = "null"
"""The label of the wheel without machine code."""
LABEL_PATTERN = "[0-9a-z._]{1,16}"
_LABEL_FORM = "1 to 16 characters, of 0-9, a-z, . and _"

Properties = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The values of each feature of each namespace; none for the label "null".

A machine fits if for each feature it has one of the values.
"""

_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_DO = "make the wheel again"


@dataclasses.dataclass(frozen=True)
class _Provider:
    """What tells an installer the properties of a machine."""

    namespace: str
    requires: str
    plugin: str


_PROVIDERS: Mapping[Backend, _Provider] = {
    "cuda": _Provider(
        "nvidia",
        "nvidia-variant-provider>=0.0.1,<1.0.0",
        "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
    ),
    "rocm": _Provider(
        "amd", "rocm-bootstrap>=0.3", "rocm_bootstrap.variant_provider:AMDVariantPlugin"
    ),
}
NAMESPACES: Mapping[Backend, str] = {of: one.namespace for of, one in _PROVIDERS.items()}
LOWER_BOUND, UPPER_BOUND = "cuda_version_lower_bound", "cuda_version_upper_bound"
"""The CUDA of a driver: from this one on, and before that one. A driver runs the code of all older
releases, so no wheel of ours has an upper bound."""
ARCH_FEATURE: Mapping[str, str] = {"nvidia": "sm_arch", "amd": "gfx_arch"}
"""The feature of each namespace that names archs."""
FEATURES: Mapping[str, tuple[str, ...]] = {
    "nvidia": (LOWER_BOUND, UPPER_BOUND, ARCH_FEATURE["nvidia"]),
    "amd": (ARCH_FEATURE["amd"],),
}
"""The features of each namespace that are known here."""


def is_labelled(file: str) -> bool:
    """Whether the name of a wheel has something in the label's place, behind its tags."""
    parts = file.split("-")
    # A build tag begins with a digit, the tag of a Python does not.
    with_build = len(parts) > 5 and parts[2][:1].isdigit()
    return file.endswith(".whl") and len(parts) == (7 if with_build else 6)


def split_name(file: str) -> tuple[str, str | None]:
    """The name of a wheel without its label, and the label; None for a wheel without one.

    Raises:
        ValueError: what stands in the label's place is none.
    """
    if not is_labelled(file):
        return file, None
    usual, _, label = file.removesuffix(".whl").rpartition("-")
    if problem := label_problem(label):
        raise ValueError(problem)
    return f"{usual}.whl", label


def labelled_name(file: str, label: str) -> str:
    """The name of a wheel with a label."""
    return f"{file.removesuffix('.whl')}-{label}.whl"


def index_file_name(file: str) -> str:
    """The name of the file that an index has for the labelled wheels of a wheel's release."""
    name, version, *_ = file.split("-")
    return f"{name}-{version}-variants.json"


def label_problem(label: str) -> str | None:
    """What is wrong with a label; None if nothing is."""
    if re.fullmatch(LABEL_PATTERN, label):
        return None
    count = f", of {len(label)} characters" if len(label) > 16 else ""
    return f"label: expected {_LABEL_FORM}, found {quote(label)}{count}"


def driver_bound(release: str, archs: Collection[Arch]) -> str:
    """The oldest CUDA of a driver that runs a toolkit's code on each GPU that it is for.

    A driver runs machine code of every minor release of its CUDA, and compiles PTX up to its own
    version. So PTX counts where a GPU that the toolkit knows has nothing else. A GPU that is newer
    than the toolkit has a newer driver.
    """

    def has_ptx_alone(gpu: Arch) -> bool:
        compiled = any(machine_code_runs_on(arch, gpu) for arch in archs)
        return not compiled and any(arch.ptx and ptx_runs_on(arch, gpu) for arch in archs)

    if any(map(has_ptx_alone, ToolkitRelease("cuda", release).archs)):
        written = _ptx_versions().get(minor_version(release))
        return (ptx_release(written) if written else None) or minor_version(release)
    return f"{major_version(release)}.0"


def ptx_release(version: str) -> str | None:
    """The oldest CUDA whose driver compiles a version of PTX; None for a newer version."""
    needed, known = version_numbers(version), _ptx_versions().items()
    return next((release for release, one in known if version_numbers(one) >= needed), None)


@functools.cache
def _ptx_versions() -> Mapping[str, str]:
    """The newest PTX that each CUDA writes, the oldest CUDA first."""
    return dict(data.read("compat.json")["ptx"])


def arch_values(archs: Iterable[Arch]) -> tuple[str, ...]:
    """The values of `sm_arch` or `gfx_arch` for machine code of archs, and for PTX of "+PTX"."""
    found: dict[str, None] = {}
    for arch in sorted(set(archs), key=lambda one: (isinstance(one, RocmArch), one)):
        if isinstance(arch, CudaArch):
            found |= dict.fromkeys(code_values("sass", arch))
            found |= dict.fromkeys(code_values("ptx", arch) if arch.ptx else ())
        else:
            found |= dict.fromkeys(code_values("hsaco", arch))
    return tuple(found)


def code_values(kind: str, arch: Arch) -> tuple[str, ...]:
    """The values for one module of GPU code: of kind "sass", "ptx" or "hsaco".

    AMD's provider names processors, without their features; a generic target is for several.
    """
    if isinstance(arch, CudaArch):
        return (f"{arch.number}_{'virtual' if kind == 'ptx' else 'real'}",)
    return processors(arch)


def properties_of(claims: Claims) -> Properties:
    """The properties of a labelled wheel, by its claims."""
    kernels = [part.needs for part in claims.parts if part.kind == "kernels"]
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for backend, namespace in NAMESPACES.items():
        own = [needs for needs in kernels if needs.backend == backend]
        archs = [arch for needs in own for arch in needs.archs]
        if backend == "cuda" and own:
            bounds = (driver_bound(needs.toolkit_version or "", needs.archs) for needs in own)
            # The matrix wants one bound for the toolkits of a label.
            bound = max(bounds, key=version_numbers)
            found[namespace] = {LOWER_BOUND: (bound,), ARCH_FEATURE[namespace]: arch_values(archs)}
        elif own:
            found[namespace] = {ARCH_FEATURE[namespace]: arch_values(archs)}
    return found


def misfit(properties: Properties, cuda: str | None, gpus: Iterable[Arch]) -> str | None:
    """What of a label a machine has not; None if it fits, as far as the features are known here.

    Args:
        properties: the label's.
        cuda: the CUDA that the driver is for, e.g. "13.0"; None if there is no NVIDIA driver.
        gpus: the archs of its GPUs.
    """
    own = {name: [gpu for gpu in gpus if NAMESPACES[backend_of(gpu)] == name] for name in FEATURES}
    for name, features in properties.items():
        for feature, values in features.items() if name in FEATURES else ():
            if feature == ARCH_FEATURE[name]:
                fits = any(_runs(value, gpu) for value in values for gpu in own[name])
                found = f"GPUs: {join_names(map(str, own[name])) or 'none'}"
            else:
                bounds, here = map(version_numbers, values), version_numbers(cuda or "")
                fits = any(here >= one if feature == LOWER_BOUND else here < one for one in bounds)
                found = f"a driver for CUDA {cuda or 'none'}"
            if not fits:
                return f"{feature} {' '.join(values)}, and here: {found}"
    return None


def _runs(value: str, gpu: Arch) -> bool:
    """Whether a GPU runs the code that a value of an arch names."""
    number, _, kind = value.partition("_")
    try:
        arch = parse_binary_name(f"sm_{number}" if kind else number)
    except ValueError:
        return False
    return ptx_runs_on(arch, gpu) if kind == "virtual" else machine_code_runs_on(arch, gpu)


def file_text(labels: Mapping[str, Properties]) -> str:
    """Byte-stable JSON of variant.json, or of an index's file with several labels."""
    # All of them in each file, so that those of several wheels can be joined.
    document = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": [one.namespace for one in _PROVIDERS.values()]},
        "providers": {
            one.namespace: {"requires": [one.requires], "plugin-api": one.plugin}
            for one in _PROVIDERS.values()
        },
        "variants": dict(sorted(labels.items())),
    }
    return json.dumps(document, indent=1) + "\n"


def read_labels(content: str | bytes, where: str) -> Mapping[str, Properties]:
    """The properties of each label of a file that anybody wrote.

    Raises:
        MalformedError: one line: place, what was expected, what was found, what to do.
    """
    document = parse_json(content, dict[str, object], where, do=_DO)

    def part(key: str, kind: type[T]) -> T:
        if key not in document:
            raise MalformedError(where, f"expected key {quote(key)}, found none", _DO)
        try:
            return parse_json(json.dumps(document[key]), kind, where)
        except MalformedError as error:
            raise MalformedError(where, f"{key}: {error.reason}", _DO) from None

    priorities = part("default-priorities", dict[str, tuple[str, ...]])
    providers = part("providers", dict[str, dict[str, object]])
    labels = part("variants", dict[str, dict[str, dict[str, tuple[str, ...]]]])
    for problem in _problems(priorities.get("namespace", ()), providers, labels):
        raise MalformedError(where, problem, _DO)
    return labels


_NAME, _VALUE = re.compile("[a-z0-9_]{1,64}"), re.compile("[a-z0-9_.]{1,64}")


def _problems(
    priorities: Sequence[str], providers: Mapping[str, Any], labels: Mapping[str, Properties]
) -> Iterator[str]:
    # uv installs no wheel whose list is empty, not even that of the label "null".
    if sorted(priorities) != sorted(providers) or not priorities:
        found = join_names(map(quote, priorities)) or "none"
        expected = join_names(map(quote, providers)) or "none"
        yield f"default-priorities.namespace: expected the providers, {expected}, found {found}"
    if not labels:
        yield "variants: expected a label, found none"
    for label, properties in labels.items():
        place = f"variants.{quote(label)}"
        if problem := label_problem(label):
            yield f"variants: {problem}"
        elif (label == NULL) != (not properties):
            expected = "no property" if label == NULL else f"a property, or the label {NULL}"
            yield f"{place}: expected {expected}, found {join_names(properties) or 'none'}"
        for namespace, features in properties.items():
            if namespace not in providers:
                known = join_names(map(quote, providers)) or "none"
                yield f"{place}: expected a provider of {known}, found {quote(namespace)}"
            for feature, values in features.items():
                yield from _value_problems(f"{place}.{namespace}.{feature}", feature, values)
            if not features:
                yield f"{place}.{namespace}: expected a feature, found none"


def _value_problems(place: str, feature: str, values: Sequence[str]) -> Iterator[str]:
    if not _NAME.fullmatch(feature):
        yield f"variants: expected the name of a feature, found {quote(feature)}"
    if not values:
        yield f"{place}: expected a value, found none"
    for at, value in enumerate(values):
        if not _VALUE.fullmatch(value):
            yield f'{place}[{at}]: expected e.g. "90_real", found {quote(value)}'
        elif value in values[:at]:
            yield f"{place}: expected each value once, found {quote(value)} twice"
