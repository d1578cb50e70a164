import json
import os
import platform
import random
import subprocess
import time
from pathlib import Path

import pytest
from killing import torchwheel

from torchwheel import __version__
from torchwheel_runtime.lock import hold_lock
from wheelmaker import make_wheel

# A torch of a few lines: the kills are of torchwheel, and torch's import takes seconds.
TORCH = """\
from types import SimpleNamespace
__version__ = "2.13.0+small"
version = SimpleNamespace(cuda=None, hip=None)
cuda = SimpleNamespace(is_available=lambda: False)
_C = SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
"""
SOURCE = "small/__init__.py"
PROJECT = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "small"
version = "1.0"
dependencies = ["torch"]
[tool.setuptools]
packages = ["small"]
""",
    "matrix.yaml": """\
schema: 1
project: {name: small, source: .}
abis: {pure: {torch: "2.6"}}
toolkits: {}
torch: {}
platforms: [linux_x86_64]
selections: {default: [pure], release: [pure]}
smoke: {tests: smoke, torch: "2.13.0+small", requires: [pytest]}
gates: {max_size_mib: 2}
""",
    "smoke/test_small.py": "import small\n\ndef test_it():\n    assert small.VERSION in (0, 1)\n",
}


@pytest.fixture(scope="session")
def links_and_cache(tmp_path_factory):
    """A folder with the small torch, for pip, and a cache that is used with it."""
    folder = tmp_path_factory.mktemp("links")
    torch = {"torch/__init__.py": TORCH.encode()}
    make_wheel(folder, name="torch", version="2.13.0+small", files=torch, claims=None, requires=())
    return folder, tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def small_torch(links_and_cache):
    """Lets pip find the small torch beside the packages of the index, in these tests alone."""
    links, cache = links_and_cache
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", f"{links} {os.environ.get('PIP_FIND_LINKS', '')}".strip())
        patch.setenv("TORCHWHEEL_CACHE", str(cache))
        yield


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    """A small pure project in two versions of its sources."""
    made = []
    for number in range(2):
        project = tmp_path_factory.mktemp("project") / "small"
        for name, text in {**PROJECT, SOURCE: f"VERSION = {number}\n"}.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        made.append(project)
    return made


@pytest.fixture
def kills(request):
    """How often a test kills: --kills, else the number that the test gives."""
    asked = request.config.getoption("--kills", None)
    return lambda usual: asked or usual


@pytest.fixture
def chance(request, capsys):
    """Random moments, and their seed, which is printed."""
    seed = request.config.getoption("--seed", None) or random.SystemRandom().randrange(1 << 32)
    with capsys.disabled():
        print(f"\n{request.node.name}: --seed {seed}")
    made = random.Random(seed)
    made.own_seed = seed
    return made


@pytest.fixture
def seconds(request):
    """The longest time of one test's kills."""
    return request.config.getoption("--seconds", None) or 86400.0


@pytest.fixture
def keep(request, chance):
    """Adds a tally to a section of the record, the file of --record."""
    file = request.config.getoption("--record", None)

    def write(section: str, name: str, tally: dict) -> None:
        if file is None:
            return
        path = Path(file)
        # Other workers write their tallies too.
        with hold_lock(path.with_suffix(".lock"), lambda: None):
            record = json.loads(path.read_text()) if path.is_file() else {"schema": 1}
            record |= {
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "user": "root" if os.geteuid() == 0 else "ordinary",
                "torchwheel": __version__,
                "python": platform.python_version(),
                "kernel": platform.release(),
                "cores": os.cpu_count(),
            }
            record.setdefault(section, {})[name] = {"seed": chance.own_seed, **tally}
            path.write_text(json.dumps(record, indent=1) + "\n")
            path.with_suffix(".lock").unlink()

    return write


@pytest.fixture(scope="module")
def torchwheel_run():
    """Runs the command line to its end, which must be a success."""

    def run(*arguments: object) -> None:
        subprocess.run(torchwheel(*arguments), check=True, capture_output=True)

    return run
