"""Provisioning for real: PyPI's wheels, a compiler, two processes at once, bent locks."""

import contextlib
import dataclasses
import functools
import http.server
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loopback import serving
from torchwheel.toolkit.provide import compile_probe
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine.toolkits import locate_system, require_cuda
from torchwheel_runtime.pip import run_pip
from torchwheel_runtime.toolkit import provision
from torchwheel_runtime.toolkit.host import host_compiler
from torchwheel_runtime.toolkit.index import target_options
from torchwheel_runtime.toolkit.lock import components

pytestmark = pytest.mark.integration
PLATFORM = "linux_x86_64"
PROVISION = """
import sys
from pathlib import Path
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.toolkit.provision import provision_pypi
print(provision_pypi("13.0", "{platform}", Path(sys.argv[1]), Terminal())[0])
"""


@pytest.fixture(scope="module")
def cuda(cache):
    return provision.provision_pypi("13.0", PLATFORM, cache, Quiet())[0]


def test_the_provisioned_toolkit_is_one_release_and_compiles_every_arch(cuda):
    assert require_cuda(cuda, "13.0") == "13.0"
    compile_probe(cuda, list(map(parse, ("7.5", "9.0", "12.0+PTX"))), str(host_compiler().path))


def test_the_toolkit_is_found_as_a_system_one_by_cuda_home(cuda, tmp_path):
    root, identity = locate_system(print, {"CUDA_HOME": str(cuda), "PATH": ""})
    assert root == cuda.resolve()
    assert len(identity) == 16
    with pytest.raises(TorchwheelError, match="has no bin/nvcc"):
        locate_system(print, {"CUDA_HOME": str(tmp_path)})


def test_a_probe_that_does_not_compile_says_what_the_compiler_said(cuda):
    with pytest.raises(TorchwheelError, match=r"cannot compile a probe kernel for 3\.5 with"):
        compile_probe(cuda, [parse("3.5")], str(host_compiler().path))


def test_a_hash_that_differs_stops_everything(tmp_path, monkeypatch):
    reader = next(c for c in components("13.0") if c.project == "nvidia-cuda-crt")
    bent = dataclasses.replace(reader, sha256={PLATFORM: "0" * 64})
    monkeypatch.setattr(provision, "components", lambda _: (bent,))
    with pytest.raises(TorchwheelError, match="hash mismatch"):
        provision.provision_pypi("13.0", PLATFORM, tmp_path, Quiet())
    assert not list((tmp_path / "toolkits").glob("cuda-*[!k]"))


class HalfServer(http.server.SimpleHTTPRequestHandler):
    """An index on loopback that cuts the line in the middle of a wheel."""

    def copyfile(self, source, outputfile):
        data = source.read()
        outputfile.write(data if self.path.endswith("/") else data[: len(data) // 2])

    def log_message(self, *_):
        pass


def test_a_cut_download_leaves_nothing_and_the_next_run_goes_on(tmp_path, monkeypatch):
    crt = next(c for c in components("13.0") if c.project == "nvidia-cuda-crt")
    monkeypatch.setattr(provision, "components", lambda _: (crt,))
    page = tmp_path / "index" / crt.project / "index.html"
    page.parent.mkdir(parents=True)
    pin = f"{crt.project}=={crt.version}"
    run_pip(["download", *target_options(PLATFORM), "--dest", str(page.parent), pin], "a wheel")
    wheel = next(page.parent.glob("*.whl")).name
    page.write_text(f'<a href="{wheel}">{wheel}</a>')
    handler = functools.partial(HalfServer, directory=str(tmp_path / "index"))
    with monkeypatch.context() as cut, serving(handler) as address:
        cut.setenv("PIP_CONFIG_FILE", os.devnull)
        cut.setenv("PIP_INDEX_URL", address)
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
            cut.setenv(name, "")
        cut.setenv("PIP_RETRIES", "0")
        cut.setenv("PIP_NO_CACHE_DIR", "1")
        with pytest.raises(TorchwheelError, match="downloading the CUDA toolkit: ") as caught:
            provision.provision_pypi("13.0", PLATFORM, tmp_path / "cache", Quiet())
    assert len(str(caught.value).splitlines()) == 1
    assert not list((tmp_path / "cache/toolkits").glob("cuda-*[!k]"))
    root, _ = provision.provision_pypi("13.0", PLATFORM, tmp_path / "cache", Quiet())
    assert (root / "include" / "crt").is_dir()


@pytest.mark.nightly
def test_a_killed_provisioning_leaves_nothing_that_looks_finished(tmp_path):
    code = PROVISION.format(platform=PLATFORM)
    whole = 3.0
    for moment in (random.uniform(0.3, whole), random.uniform(0.3, whole)):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for root in (tmp_path / "toolkits").glob("cuda-*[!k]"):
            assert require_cuda(root, "13.0") == "13.0"
    root, _ = provision.provision_pypi("13.0", PLATFORM, tmp_path, Quiet())
    assert require_cuda(root, "13.0") == "13.0"
    left = [path.name for path in (tmp_path / "toolkits").iterdir() if path != root]
    assert left == [f"{root.name}.lock"]


def test_processes_that_provision_at_once_do_not_collide(tmp_path):
    code = PROVISION.format(platform=PLATFORM)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    roots = {out.strip() for out, _ in outputs}
    assert len(roots) == 1
    said = "".join(err for _, err in outputs)
    assert said.count("downloading") == 1
    assert said.count("another run provisions it: waiting") == 1
    assert require_cuda(Path(roots.pop()), "13.0") == "13.0"
