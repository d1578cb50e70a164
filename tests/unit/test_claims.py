"""The claims file: read back as it was written, and refused in one line where it is malformed."""

import json

import pytest

from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Claims, LibraryNeeds, Part
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import PURE, stable

ATEN = Claims("v", "aten", "2.6", "cuda", "cu124", "12.4", (parse("9.0a+PTX"),))
CPU = Claims("v", "aten", "2.6", project_local="git.5", borrowed=("libgomp.so.1",))

KERNELS = Part(
    "kernels",
    "cu124",
    "pkg/_lib/kernels/cu124.so",
    "ab",
    backend="cuda",
    toolkit_version="12.4",
    archs=(parse("9.0+PTX"),),
)
OLD_TORCH = Part("front_end", "torch2.6", "f.so", "cd", "2.6", "aten", old_abi=True)
UNIVERSAL = Claims("universal", "universal", "2.6", parts=(KERNELS, OLD_TORCH))


@pytest.mark.parametrize("claims", [PURE, ATEN, CPU, UNIVERSAL, stable(archs=("gfx90a:xnack-",))])
def test_claims_read_back(claims):
    text = claims_file.dumps(claims)
    assert claims_file.loads(text, "x") == claims
    assert claims_file.dumps(claims_file.loads(text, "x")) == text


@pytest.mark.parametrize(
    ("claims", "local", "torch_range"),
    [
        (PURE, None, ">=2.6"),
        (stable(), "cu130", ">=2.11"),
        (ATEN, "cu124torch2.6", "==2.6.*"),
        (CPU, "git.5.cputorch2.6", "==2.6.*"),
        (UNIVERSAL, None, ">=2.6"),
    ],
)
def test_local_version_and_torch_range(claims, local, torch_range):
    assert (claims.local, claims.torch_range) == (local, torch_range)


def test_needs():
    assert ATEN.needs == LibraryNeeds("aten", "==2.6.*", "cuda", "12.4", (parse("9.0a+PTX"),))
    assert KERNELS.needs == LibraryNeeds("stable", "", "cuda", "12.4", (parse("9.0+PTX"),))
    assert OLD_TORCH.needs == LibraryNeeds("aten", "==2.6.*")


ABIS = 'expected "stable" or "aten" or "pure" or "universal", found "stabel"'
CHANGES = [
    ({"schema": 2}, "expected schema 5, found 2"),
    ({"abi": "stabel"}, f"abi: {ABIS}"),
    ({"backend": "vulkan"}, 'backend: expected "cuda" or "rocm", found "vulkan"'),
    ({"archs": ["sm_90"]}, '"sm_90" is not an arch; expected e.g. "9.0" or "9.0+PTX"'),
    ({"archs": [9.0]}, "archs[0]: expected text, found 9.0"),
    ({"borrowed": [None]}, "borrowed[0]: expected text, found null"),
    ({"torch_release": "2.11.0"}, 'torch_release "2.11.0" is not e.g. 2.11'),
    ({"torch_release": ""}, 'torch_release "" is not e.g. 2.11'),
    ({"torch_release": "1" * 5000}, '111…" is not e.g. 2.11'),
    ({"torch_release": None}, "torch_release: expected text, found null"),
    ({"toolkit": 130}, "toolkit: expected text, found 130"),
    ({"surprise": 1}, 'expected no key "surprise", found one'),
]
PART_CHANGES = [
    ({"kind": "plugin"}, '[0].kind: expected "kernels" or "front_end" or '),
    ({"abi": "pure"}, '[0].abi: expected "stable" or "aten", found "pure"'),
    ({"backend": "vulkan"}, "[0].backend: expected "),
    ({"torch_release": "2.6"}, "every kind but kernels names a torch_release"),
    ({"sha256": 5}, "[0].sha256: expected text, found 5"),
    ({"archs": [9]}, "[0].archs[0]: expected text, found 9"),
]


@pytest.mark.parametrize(
    ("changes", "says", "part"),
    [*((*one, False) for one in CHANGES), *((*one, True) for one in PART_CHANGES)],
)
def test_malformed(changes, says, part):
    data = json.loads(claims_file.dumps(UNIVERSAL if part else stable()))
    (data["parts"][0] if part else data).update(changes)
    with pytest.raises(TorchwheelError) as error:
        claims_file.loads(json.dumps(data), "x.json")
    assert str(error.value).startswith("x.json: not a torchwheel claims file: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "1", "{}", '{"schema": 2}'])
def test_not_claims(text):
    with pytest.raises(TorchwheelError, match="x: not a torchwheel claims file"):
        claims_file.loads(text, "x")


def test_only_a_universal_wheel_has_parts():
    data = json.loads(claims_file.dumps(UNIVERSAL))
    for changes in ({"parts": []}, {"abi": "stable"}):
        with pytest.raises(TorchwheelError, match="a universal wheel has parts, and no other"):
            claims_file.loads(json.dumps(data | changes), "x.json")
