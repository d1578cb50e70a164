from pathlib import Path

import pytest

from torchwheel.console import Quiet
from torchwheel.machine.facts import Torch
from torchwheel.runtime.local_target import download_offer, download_toolkit
from torchwheel.toolkit import provision


def torch(cuda):
    return Torch("2.13.0", cuda, None, Path("/torch"))


def test_what_the_lock_has_is_offered():
    (text,) = download_offer(torch("13.0"))
    assert text.startswith("or set TORCHWHEEL_DOWNLOAD=1: CUDA 13.0 is then downloaded")


@pytest.mark.parametrize("cuda", [None, "11.8", "99.0"])
def test_what_cannot_be_had_is_not_offered(cuda):
    assert download_offer(torch(cuda)) == ()
    assert download_toolkit(torch(cuda), {"TORCHWHEEL_DOWNLOAD": "1"}, Quiet()) is None


@pytest.mark.parametrize("environ", [{}, {"TORCHWHEEL_DOWNLOAD": "0"}, {"TORCHWHEEL_DOWNLOAD": ""}])
def test_nothing_is_downloaded_unasked(environ, monkeypatch):
    monkeypatch.setattr(provision, "provision_pypi", lambda *_: pytest.fail("it was downloaded"))
    assert download_toolkit(torch("13.0"), environ, Quiet()) is None


def test_what_is_allowed_is_provisioned(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path))
    monkeypatch.setattr(provision, "provision_pypi", lambda release, *_: (tmp_path / release, "id"))
    found = download_toolkit(torch("13.0"), {"TORCHWHEEL_DOWNLOAD": "1"}, Quiet())
    assert found is not None
    assert (found.root, found.release) == (tmp_path / "13.0", "13.0")
