"""`torchwheel install` takes the right wheel of a served index, with pip and with uv."""

import functools
import http.server
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import setups
import wheelmaker
from loopback import serving
from torchwheel.index.groups import groups_of
from torchwheel.index.listing import all_groups
from torchwheel.index.serve import serve_in_background
from torchwheel.index.writer import IndexedWheel, build_index
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.machine import probe

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not probe.glibc_version(), reason="needs glibc"),
]
OWN = f"cp3{sys.version_info.minor}"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index of an ordinary project: a wheel for each torch, toolkit and Python."""
    folder = tmp_path_factory.mktemp("index")
    built = []
    for torch in ("2.6", "2.11", "2.13"):
        for python in (OWN, "cp39"):
            claims = [
                wheelmaker.stable(
                    variant=f"{name}-torch{torch}-{python}",
                    abi="aten",
                    torch_release=torch,
                    toolkit=name,
                    toolkit_version=release,
                )
                for name, release in (("cu124", "12.4"), ("cu130", "13.0"))
            ]
            built += [(torch, python, one) for one in claims]
            built.append((torch, python, Claims(f"cpu-torch{torch}-{python}", "aten", torch)))
    wheels = [
        wheelmaker.make_wheel(
            folder / "dist",
            version=f"1.0.0+{claims.local}",
            tag=f"{python}-{python}-manylinux_2_17_{platform.machine()}",
            claims=claims,
            requires=(f"torch=={torch}.*", "helper>=1"),
        )
        for torch, python, claims in built
    ]
    groups = groups_of([claims for _, _, claims in built])
    helper = wheelmaker.make_wheel(
        folder / "dist", name="helper", version="1.2", claims=None, requires=()
    )
    files = [IndexedWheel(*pair) for pair in zip(wheels, groups, strict=True)]
    build_index([*files, IndexedWheel(helper, all_groups(groups))], folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def address(index):
    with serve_in_background(index) as found:
        yield found


@pytest.fixture
def environment(tmp_path):
    """Makes an environment, with the files of a torch that are read."""

    def make(torch: str | None, cuda: str | None = None, *, pip: bool = False) -> Path:
        venv = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"]
        subprocess.run(venv, check=True)
        (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
        if pip:
            setups.link(["pip"], site)
        if torch:
            (site / "torch").mkdir()
            (site / "torch" / "__init__.py").touch()
            text = f"__version__ = {torch!r}\ncuda = {cuda!r}\nhip = None\n"
            (site / "torch" / "version.py").write_text(text)
            info = site / f"torch-{torch}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n"
            )
        return tmp_path / "venv" / "bin" / "python"

    return make


def versions(python: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {name: found[name] for name in ("demo", "helper", "torch") if name in found}


@pytest.mark.parametrize(
    ("torch", "cuda", "pip", "local"),
    [
        ("2.6.0+cu124", "12.4", True, "cu124torch2.6"),
        ("2.13.0+cu130", "13.0", False, "cu130torch2.13"),
        ("2.11.0+cpu", None, False, "cputorch2.11"),
    ],
)
def test_the_wheel_for_the_torch_that_is_there(
    address, environment, torchwheel, tmp_path, torch, cuda, pip, local
):
    python = environment(torch, cuda, pip=pip)
    done = torchwheel("install", "demo", "--index", address, "--python", python, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"takes      demo-1.0.0+{local}-{OWN}-{OWN}-" in done.stdout
    assert f"installed by {'pip' if pip else 'uv'}: demo-1.0.0+{local}" in done.stderr
    assert versions(python) == {"demo": f"1.0.0+{local}", "helper": "1.2", "torch": torch}
    frozen = subprocess.run(
        [shutil.which("uv"), "pip", "freeze", "--python", python],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"demo @ {address}/files/demo-1.0.0" in frozen.stdout
    assert f"helper @ {address}/files/helper-1.2-py3-none-any.whl" in frozen.stdout


@pytest.mark.parametrize("pip", [True, False])
def test_settings_of_the_user_do_not_lead_elsewhere(
    address, environment, torchwheel, tmp_path, pip
):
    """Each alone would keep the wheels out, and the command would say that they are there."""
    python = environment("2.6.0+cu124", "12.4", pip=pip)
    (tmp_path / "constraints.txt").write_text("demo==0.1\nhelper==0.1\n")
    (tmp_path / "pip.conf").write_text(f"[global]\ntarget = {tmp_path / 'there'}\n")
    settings = {
        "PIP_TARGET": tmp_path / "there",
        "PIP_PREFIX": tmp_path / "there",
        "PIP_DRY_RUN": "1",
        "PIP_NO_BINARY": ":all:",
        "PIP_CONSTRAINT": tmp_path / "constraints.txt",
        "PIP_CONFIG_FILE": tmp_path / "pip.conf",
        "UV_CONSTRAINT": tmp_path / "constraints.txt",
        "UV_NO_BINARY": "1",
    }
    call = ("install", "demo", "--index", address, "--python", python)
    done = torchwheel(*call, cwd=tmp_path, **{name: str(one) for name, one in settings.items()})
    assert done.returncode == 0, done.stderr
    assert versions(python) == {
        "demo": "1.0.0+cu124torch2.6",
        "helper": "1.2",
        "torch": "2.6.0+cu124",
    }
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("pip", "conf", "variables", "says"),
    [
        (True, "[install]\ntarget = {there}\n", {}, None),
        (True, "prefix = {there}\n[install]\nuser = true\n", {}, None),
        (True, "[install]\nforce-reinstall = yes\nupgrade-strategy = eager\n", {}, None),
        (True, "", {"PIP_UPGRADE": "1", "PIP_UPGRADE_STRATEGY": "eager"}, None),
        (True, "", {"PIP_IGNORE_INSTALLED": "1"}, None),
        (True, "", {"PIP_PYTHON": sys.executable}, None),
        (False, "reinstall = true\nupgrade = true\nno-deps = true\n", {}, None),
        (False, "target = '{there}'\n", {}, "expected helper>=1 to be installed now, found none"),
    ],
)
def test_settings_lead_no_requirement_elsewhere_and_replace_no_torch(
    environment, torchwheel, tmp_path, pip, conf, variables, says
):
    """The index lacks helper, so pip or uv looks for it, where it is set up; they find torches."""
    demo = wheelmaker.make_wheel(tmp_path / "dist", claims=None, requires=("helper>=1",))
    build_index([IndexedWheel(demo, ("simple",))], tmp_path / "index")
    links = tmp_path / "links"
    make = functools.partial(wheelmaker.make_wheel, links, claims=None)
    make(name="helper", version="1.2", requires=("torch>=2",))
    for version in ("2.13.0", "2.13.0+cu126"):
        make(name="torch", version=version, requires=())
    python = environment("2.13.0", "13.0", pip=pip)
    text = conf.format(there=tmp_path / "there")
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text(f"[pip]\n{text}" if not pip else "")
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {links}\nno-index = 1\n{text}")
    settings = {
        **variables,
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
        "PIP_FIND_LINKS": "",
        "XDG_CONFIG_HOME": str(tmp_path),
        "UV_FIND_LINKS": str(links),
        "UV_OFFLINE": "1",
    }
    index = f"{(tmp_path / 'index').as_uri()}/simple"
    done = torchwheel(
        "install", "demo", "--index", index, "--python", python, cwd=tmp_path, **settings
    )
    assert done.returncode == int(says is not None), done.stderr
    assert (says or "installed by ") in done.stderr
    there = {} if says else {"demo": "1.0.0", "helper": "1.2"}
    assert versions(python) == {**there, "torch": "2.13.0"}
    site = next(tmp_path.glob("venv/lib/python3*/site-packages"))
    assert len([*site.glob("torch-*.dist-info")]) == 1


def test_pypis_torch_is_pinned_by_the_version_that_pip_knows(environment, torchwheel, tmp_path):
    """It is installed as 2.13.0 and calls itself 2.13.0+cu130."""
    demo = wheelmaker.make_wheel(tmp_path / "dist", claims=None, requires=("needs_torch",))
    build_index([IndexedWheel(demo, ("simple",))], tmp_path / "index")
    links = tmp_path / "links"
    wheelmaker.make_wheel(links, name="needs_torch", claims=None, requires=("torch==2.13.0",))
    python = environment("2.13.0+cu130", "13.0")
    (info,) = tmp_path.glob("venv/lib/python3*/site-packages/torch-*.dist-info")
    info = info.rename(info.with_name("torch-2.13.0.dist-info"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    index = f"{(tmp_path / 'index').as_uri()}/simple"
    call = ("install", "demo", "--index", index, "--python", python)
    done = torchwheel(*call, cwd=tmp_path, UV_FIND_LINKS=str(links), UV_OFFLINE="1")
    assert done.returncode == 0, done.stderr


class Store(http.server.SimpleHTTPRequestHandler):
    """Answers 403 for what is missing, and no HEAD."""

    def send_error(self, code, *_):
        super().send_error(403 if code == 404 else code)

    def do_HEAD(self):
        self.send_error(501)


@pytest.mark.parametrize("pip", [True, False])
def test_a_store_that_answers_403_serves_our_index_by_its_root(
    index, environment, torchwheel, tmp_path, pip
):
    python = environment("2.6.0+cu124", "12.4", pip=pip)
    with serving(functools.partial(Store, directory=index)) as store:
        call = ("install", "demo", "--index", store, "--python", python)
        done = torchwheel(*call, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert versions(python)["demo"] == "1.0.0+cu124torch2.6"


class Private(http.server.SimpleHTTPRequestHandler):
    """Asks for a token in the query of each address."""

    def send_head(self):
        if self.path.endswith("?token=SECRET"):
            return super().send_head()
        return self.send_error(401)


@pytest.mark.parametrize("pip", [True, False])
def test_a_token_in_the_address_goes_to_the_files_and_is_kept_nowhere(
    index, environment, torchwheel, tmp_path, pip
):
    python = environment("2.6.0+cu124", "12.4", pip=pip)
    with serving(functools.partial(Private, directory=index)) as store:
        call = ("install", "demo", "--python", python, "--index")
        done = torchwheel(*call, f"{store}/?token=SECRET", cwd=tmp_path)
        without = torchwheel(*call, store, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert versions(python)["demo"] == "1.0.0+cu124torch2.6"
    assert "SECRET" not in done.stdout + done.stderr
    infos = tmp_path.glob("venv/lib/python3*/site-packages/demo-*.dist-info/**/*")
    files = [info for info in infos if info.is_file()]
    assert not [info for info in files if b"SECRET" in info.read_bytes()]
    assert "found status 401, which asks for a user or a token" in without.stderr


@pytest.mark.parametrize("pip", [True, False])
def test_the_working_folder_gives_no_program_and_no_settings(
    environment, torchwheel, tmp_path, pip
):
    here, mark = tmp_path / "here", tmp_path / "ran"
    demo = wheelmaker.make_wheel(tmp_path / "dist", claims=None, requires=("outside",))
    build_index([IndexedWheel(demo, ("simple",))], tmp_path / "index")
    for folder, version in ((here / "links", "1.0"), (tmp_path / "evil", "9.9")):
        wheelmaker.make_wheel(folder, name="outside", version=version, claims=None, requires=())
    (here / "uv.toml").write_text(f'find-links = ["{tmp_path / "evil"}"]\n')
    for name in ("pip", "email", "torch", "runpy"):
        (here / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    own = {"PIP_FIND_LINKS": "./links", "PIP_NO_INDEX": "1", "UV_FIND_LINKS": "./links"}
    index = f"{(tmp_path / 'index').as_uri()}/simple"
    environment("2.6.0", pip=pip)
    call = ("install", "demo", "--index", index, "--python", "../venv/bin/python")
    done = torchwheel(*call, cwd=here, UV_OFFLINE="1", **own)
    assert done.returncode == 0, done.stderr
    code = "import importlib.metadata as m; print(m.version('outside'))"
    version = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout == "1.0\n"
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize("pip", [True, False])
@pytest.mark.parametrize("bundled", ["torchwheel", "helper"])
def test_a_bundled_package_that_the_index_lacks_is_taken_from_no_other(
    environment, torchwheel, tmp_path, pip, bundled
):
    make = functools.partial(wheelmaker.make_wheel, tmp_path / "dist", claims=None)
    demo = make(requires=(f"{bundled}>=0.1",))
    own = make(name=bundled, version="0.1", requires=())
    index = tmp_path / "index"
    build_index([IndexedWheel(wheel, ("simple",)) for wheel in (demo, own)], index)
    wheelmaker.make_wheel(
        tmp_path / "evil", name=bundled, version="0.1.5", claims=None, requires=()
    )
    shutil.rmtree(index / "simple" / bundled)
    shutil.rmtree(index / "all" / bundled)
    python = environment("2.6.0", pip=pip)
    evil = str(tmp_path / "evil")
    more = {"PIP_FIND_LINKS": evil, "UV_FIND_LINKS": evil, "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    for address in (index.as_uri(), f"{index.as_uri()}/simple"):
        call = ("install", "demo", "--index", address, "--python", python)
        done = torchwheel(*call, cwd=tmp_path, **more)
        assert (done.returncode, versions(python)) == (1, {"torch": "2.6.0"}), done.stderr
        assert f"{address}: expected the bundled package {bundled} of demo-" in done.stderr


def test_a_torch_that_no_wheel_is_for_and_no_torch(address, environment, torchwheel, tmp_path):
    python = environment("2.12.0+cu130", "13.0")
    here = ("demo", "--index", address, "--python", python)
    done = torchwheel("install", *here, cwd=tmp_path)
    assert (done.returncode, done.stdout.count("takes")) == (1, 0)
    assert done.stderr.startswith("torchwheel: demo: expected a wheel that fits, found none of 18")
    shutil.rmtree(tmp_path / "venv")
    environment(None)
    done = torchwheel("install", *here, cwd=tmp_path)
    assert done.returncode == 1
    assert "found no torch, which this command never installs; `pip install 'torch==2.13.*'" in (
        done.stderr
    )
    assert versions(python) == {}


def test_a_dry_run_says_why_and_changes_nothing(index, environment, torchwheel, tmp_path):
    python = environment("2.6.0+cu124", "12.4")
    here = ("demo==1.0.0", "--index", index.as_uri(), "--python", python)
    done = torchwheel("install", *here, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["chosen"]["version"] == "1.0.0+cu124torch2.6"
    assert versions(python) == {"torch": "2.6.0+cu124"}
    reasons = {
        one["version"]: [reason["rule"] for reason in one["reasons"]]
        for one in document["wheels"]
        if f"-{OWN}-" in one["file"]
    }
    assert reasons["1.0.0+cu130torch2.6"] == ["toolkit-torch"]
    assert reasons["1.0.0+cu130torch2.13"] == ["torch", "toolkit-torch"]
    text = torchwheel("install", *here, "--why", cwd=tmp_path).stdout
    assert text.count("rejected   demo-") == 16
    assert versions(python) == {"torch": "2.6.0+cu124"}


def test_a_file_of_other_bytes_is_not_installed(index, environment, torchwheel, tmp_path):
    copy = shutil.copytree(index, tmp_path / "index")
    (wheel,) = copy.glob(f"files/demo-1.0.0+cu124torch2.6-{OWN}-*.whl")
    wheel.unlink()
    wheel.write_bytes(b"x" * (index / "files" / wheel.name).stat().st_size)
    python = environment("2.6.0+cu124", "12.4")
    here = ("install", "demo", "--index", copy.as_uri(), "--python", python)
    done = torchwheel(*here, cwd=tmp_path)
    assert done.returncode == 1
    assert "as the index says, found" in done.stderr
    done = torchwheel(*here, "--repository", "owner/demo", cwd=tmp_path)
    assert done.returncode == 1
    assert versions(python) == {"torch": "2.6.0+cu124"}


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on PATH")
@pytest.mark.parametrize(
    ("symbol", "says"),
    [
        ("_ZN3c1015GetCPUAllocatorEv", None),
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "strings: expected a torch with the"),
        ("_ZNK3c106SymInt6sym_neERKS0_", "symbols: expected a torch that has c10::SymInt::sym_ne"),
    ],
)
def test_the_libraries_of_a_wheel_that_says_nothing(
    environment, torchwheel, tmp_path, symbol, says
):
    python = environment(None)
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    setups.link(["torch"], site)
    code = f"extern void {symbol}(void); void call(void) {{ {symbol}(); }}\n"
    (tmp_path / "demo.c").write_text(code)
    library = tmp_path / "demo.so"
    links = [f"-L{setups.TORCH / 'lib'}", "-lc10", "-Wl,--unresolved-symbols=ignore-all"]
    command = ["gcc", "-shared", "-fPIC", "demo.c", "-o", library, *links]
    subprocess.run(command, cwd=tmp_path, check=True)
    wheel = wheelmaker.make_wheel(
        tmp_path / "dist",
        tag=f"{OWN}-{OWN}-linux_{platform.machine()}",
        files={"demo/__init__.py": b"", "demo/_C.so": library.read_bytes()},
        claims=None,
        requires=(),
    )
    build_index([IndexedWheel(wheel, ("simple",))], tmp_path / "index")
    index = f"{(tmp_path / 'index').as_uri()}/simple"
    done = torchwheel("install", "demo", "--index", index, "--python", python, cwd=tmp_path)
    assert done.returncode == int(says is not None), done.stderr
    assert (says or "installed by uv") in done.stderr
    assert ("demo" in versions(python)) == (says is None)


def test_pip_takes_no_wheel_from_the_document_of_all(address, environment, tmp_path):
    """It names every wheel for some torch by its version alone."""
    python = environment("2.6.0+cu124", "12.4", pip=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--dry-run", "--index-url", f"{address}/all", "demo"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert versions(python) == {"torch": "2.6.0+cu124"}
