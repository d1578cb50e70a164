"""The claims file: read back as it was written, and refused in one line where it is malformed."""

import json

import pytest

from torchwheel import claims as claims_file
from torchwheel.arch.model import parse
from torchwheel.claims import Claims, LibraryNeeds
from torchwheel.errors import TorchwheelError
from wheelmaker import PURE, stable

ATEN = Claims("v", "aten", "2.6", "cuda", "cu124", "12.4", (parse("9.0a+PTX"),))
CPU = Claims("v", "aten", "2.6", project_local="git.5", borrowed=("libgomp.so.1",))


@pytest.mark.parametrize("claims", [PURE, ATEN, CPU, stable(archs=("gfx90a:xnack-",))])
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
    ],
)
def test_local_version_and_torch_range(claims, local, torch_range):
    assert (claims.local, claims.torch_range) == (local, torch_range)


def test_needs():
    assert ATEN.needs == LibraryNeeds("aten", "==2.6.*", "cuda", "12.4", (parse("9.0a+PTX"),))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": 1}, "schema 2 expected"),
        ({"abi": "stabel"}, "unknown abi 'stabel'"),
        ({"backend": "vulkan"}, "unknown backend 'vulkan'"),
        ({"archs": ["sm_90"]}, '"sm_90" is not an arch; expected e.g. "9.0" or "9.0+PTX"'),
        ({"archs": [9.0]}, "archs and borrowed must be strings"),
        ({"borrowed": [None]}, "archs and borrowed must be strings"),
        ({"torch_release": "2.11.0"}, "torch_release '2.11.0' is not e.g. 2.11"),
        ({"torch_release": ""}, "torch_release '' is not e.g. 2.11"),
        ({"torch_release": None}, "torch_release None is not e.g. 2.11"),
        ({"toolkit": 130}, "must be strings"),
        ({"surprise": 1}, "unexpected keyword argument 'surprise'"),
    ],
)
def test_malformed(changes, says):
    text = json.dumps({**json.loads(claims_file.dumps(stable())), **changes})
    with pytest.raises(TorchwheelError) as error:
        claims_file.loads(text, "x.json")
    assert str(error.value).startswith("x.json: not a torchwheel claims file: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "1", "{}", '{"schema": 2}'])
def test_not_claims(text):
    with pytest.raises(TorchwheelError, match="x: not a torchwheel claims file"):
        claims_file.loads(text, "x")
