"""From the page to verified files: metadata, claims, requirements, and an index that lies."""

import dataclasses
import hashlib
from pathlib import Path

import pytest
from install_cases import (
    DIGEST,
    ENVIRONMENT,
    Pages,
    bundles,
    candidate,
    document,
    entry,
    environment,
    note,
)
from packaging.requirements import Requirement

import wheelmaker
from torchwheel.cli import main
from torchwheel.install.downloaded import read_metadata
from torchwheel.install.explanation import no_torch, none_fits, ranking_json, ranking_text
from torchwheel.install.installer import direct_reference
from torchwheel.install.plan import Trust, choose, choose_file, parse_wanted, plan
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import Fetcher
from torchwheel_runtime.files import own_temporary_files

INDEX = "https://host/index"
STABLE = wheelmaker.stable(archs=("9.0",))
TAG = "py3-none-manylinux_2_28_x86_64"


class Index:
    """Wheels on pages of an index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetch = Pages({})
        self.entries: dict[str, list[dict[str, object]]] = {}
        self.bundled: tuple[str, ...] = ()

    def add(self, *, of=None, say=None, metadata=False, **fields) -> None:
        """Offer a wheel; `say` are the claims that the index names, by default its own."""
        claims = fields.setdefault("claims", STABLE if of is None else of)
        path = wheelmaker.make_wheel(self.folder, **fields)
        data, project = path.read_bytes(), fields.get("name", "demo")
        told = entry(path.name, hashes={"sha256": hashlib.sha256(data).hexdigest()})
        if claims is not None:
            told |= note(say or claims)
        if metadata:
            told["core-metadata"] = True
            content = wheelmaker.metadata(project, fields["version"], fields["requires"])
            self.fetch.pages[f"https://host/files/{path.name}.metadata"] = content
        self.fetch.files[f"https://host/files/{path.name}"] = data
        self.entries.setdefault(project, []).append(told)
        more = bundles(*self.bundled) if self.bundled else {}
        text = document(*self.entries[project], name=project, **more)
        self.fetch.pages[f"{INDEX}/{project}/"] = text.replace("../../files", "https://host/files")

    def plan(self, here=ENVIRONMENT, wanted="demo", **options):
        ranking = choose(INDEX, Requirement(wanted), here, self.fetch)
        return plan(INDEX, ranking.accepted[0], here, self.fetch, Trust(), **options)


@pytest.fixture
def index(tmp_path):
    with own_temporary_files():
        yield Index(tmp_path)


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("https://host/a+b/demo.whl?x=1", "https://host/a+b/demo.whl?x=1"),
        ("https://host/%2Bx.whl", "https://host/%2Bx.whl"),
        ("https://host/${HOME}/x.whl", "https://host/%24%7BHOME%7D/x.whl"),
        ("file:///a b/é.whl ; x", "file:///a%20b/%C3%A9.whl%20%3B%20x"),
    ],
)
def test_the_requirement_that_an_installer_is_given(url, given):
    one = candidate("1.0", url=url)
    assert direct_reference(one) == f"demo @ {given}#sha256={DIGEST}"


def test_requirements_come_from_the_index_or_are_left_to_pip(index):
    requires = ["torch>=2.11", "helper>=1", "einops>=0.3", "numpy; extra == 'test'", "tqdm"]
    index.add(version="1.0+cu130", tag=TAG, requires=requires)
    index.add(of=None, name="helper", version="1.1", claims=None, requires=["other"])
    index.add(of=None, name="other", version="2", claims=None, requires=[])
    here = environment(installed={"TQDM": "4.0"})
    made = index.plan(here)
    assert [one.path.name for one in made.downloads] == [
        f"demo-1.0+cu130-{TAG}.whl",
        "helper-1.1-py3-none-any.whl",
        "other-2-py3-none-any.whl",
    ]
    assert [str(one) for one in made.others] == ["einops>=0.3"]


@pytest.mark.parametrize(
    ("fields", "here", "rule"),
    [
        ({}, ENVIRONMENT, None),
        # What it claims comes before its name; METADATA does where nothing is claimed.
        ({"version": "1.0+cu124torch2.6"}, ENVIRONMENT, None),
        ({"claims": None, "requires": ["torch==2.13.*"]}, ENVIRONMENT, "torch"),
        ({"claims": wheelmaker.stable(torch_release="2.15")}, ENVIRONMENT, "torch"),
        ({"tag": "py3-none-win_amd64"}, ENVIRONMENT, "platform"),
        # One that nobody published as final was still named.
        ({"version": "1.0rc1"}, ENVIRONMENT, None),
    ],
)
def test_a_file_is_judged_as_a_wheel_of_an_index_is(tmp_path, fields, here, rule):
    fields = {"version": "1.0+cu130", "tag": TAG, "claims": STABLE, **fields}
    path = wheelmaker.make_wheel(tmp_path, **fields)
    ranking = choose_file(path, here)
    (judged,) = ranking.judgements
    assert [one.rule for one in judged.reasons] == ([rule] if rule else [])
    assert (ranking.project, len(ranking.accepted)) == ("demo", 0 if rule else 1)
    if rule is None:
        assert direct_reference(judged.candidate).startswith(f"demo @ file://{tmp_path}/demo-")


def test_what_is_no_extensions_wheel_is_one_line(tmp_path):
    torch = wheelmaker.make_wheel(tmp_path, name="torch", claims=None, requires=())
    for path, says in (
        (tmp_path / "demo-1-py3-none-any.whl", "expected a wheel's file, found none"),
        (torch, "torch: expected an extension"),
    ):
        with pytest.raises(UsageError, match=says):
            choose_file(path, ENVIRONMENT)
    (tmp_path / "demo.whl").touch()
    with pytest.raises(TorchwheelError, match="not a wheel's file name"):
        choose_file(tmp_path / "demo.whl", ENVIRONMENT)


def test_a_files_requirements_are_left_to_pip_but_not_a_bundled_package(index, tmp_path):
    requires = ["torch>=2.11", "einops>=0.3"]
    make = {"version": "1.0+cu130", "tag": TAG, "claims": STABLE}
    path = wheelmaker.make_wheel(tmp_path, requires=requires, **make)
    first = choose_file(path, ENVIRONMENT).accepted[0]
    made = plan(None, first, ENVIRONMENT, Fetcher(), Trust())
    assert [one.path.read_bytes() for one in made.downloads] == [path.read_bytes()]
    assert [str(one) for one in made.others] == ["einops>=0.3"]
    # Whoever registers its name elsewhere would be installed.
    path = wheelmaker.make_wheel(tmp_path, requires=["torchwheel-runtime"], **make)
    first = choose_file(path, ENVIRONMENT).accepted[0]
    with pytest.raises(UsageError, match=r"bundled package torchwheel-runtime .*with --index"):
        plan(None, first, ENVIRONMENT, Fetcher(), Trust())


@pytest.mark.parametrize(
    ("requires", "named"),
    [
        ("torchwheel-runtime>=0.1", ()),
        ("Torch_Wheel>=0.1", ("torch-wheel",)),
        ("helper", ("torchwheel-runtime", "Helper")),
        ("helper @ https://evil/helper-1-py3-none-any.whl", ("helper",)),
    ],
)
def test_a_bundled_package_is_asked_of_the_index_alone(index, requires, named):
    index.bundled = named
    index.add(version="1.0+cu130", tag=TAG, requires=["torch>=2.11", requires])
    name = Requirement(requires).name.lower().replace("_", "-")
    says = rf"^{INDEX}: expected the bundled package {name} of demo-1\.0.*, found none; report"
    with pytest.raises(TorchwheelError, match=says):
        index.plan()
    assert index.plan(environment(installed={name: "0.1"})).others == ()
    assert index.plan(dependencies=False).others == ()


def test_no_deps(index):
    index.add(version="1.0+cu130", tag=TAG, requires=["torch>=2.11", "einops"])
    assert index.plan(dependencies=False).others == ()


@pytest.mark.parametrize(
    ("local", "requires", "fits"),
    [
        ("torch2110cu130", "torch>=2.8", True),
        ("torch2110cu130", "torch", True),
        ("torch290cu130", "torch>=2.8", False),
        # METADATA is right where they differ.
        ("torch290cu130", "torch==2.11.*", False),
        ("torch2110cu130", "torch==2.9.*", False),
        # It says which torch a name means that nobody can read, or it does not.
        ("torchnightly.cu130", "torch==2.11.*", True),
        ("torchnightly.cu130", "torch>=2.8", False),
        ("torchnightly.cu130", "torch", False),
    ],
)
def test_metadata_outranks_a_name(index, local, requires, fits):
    index.add(version=f"1.0+{local}", tag=TAG, claims=None, requires=[requires], metadata=True)
    ranking = choose(INDEX, Requirement("demo"), ENVIRONMENT, index.fetch)
    assert bool(ranking.accepted) == fits
    if fits:
        index.plan()


def test_what_is_installed_is_left(index):
    index.add(version="1.0+cu130", tag=TAG, requires=["helper>=1"])
    index.add(name="helper", version="1.1", claims=None, requires=[])
    assert len(index.plan(environment(installed={"helper": "1.0"})).downloads) == 1
    assert len(index.plan(environment(installed={"helper": "0.9"})).downloads) == 2


def test_two_versions_of_a_requirement(index):
    index.add(version="1.0+cu130", tag=TAG, requires=["helper==1", "second"])
    index.add(name="helper", version="1", claims=None, requires=[])
    index.add(name="helper", version="2", claims=None, requires=[])
    index.add(name="second", version="1", claims=None, requires=["helper==2"])
    with pytest.raises(TorchwheelError, match="expected one helper for all, found that helper==2"):
        index.plan()


def test_an_index_that_says_other_claims_than_the_wheel(index):
    index.add(version="1.0+cu130", tag=TAG, claims=wheelmaker.stable(archs=("8.0",)), say=STABLE)
    with pytest.raises(TorchwheelError, match="expected claims as the index says, found others"):
        index.plan()


@pytest.mark.parametrize("metadata", [True, False])
def test_metadata_names_the_torch_that_a_name_does_not(index, metadata):
    for version, torch in (("1.0", "==2.11.*"), ("1.1", "==2.12.*")):
        requires = [f"torch{torch}"]
        index.add(version=version, tag=TAG, claims=None, requires=requires, metadata=metadata)
    if metadata:
        assert index.plan().downloads[0].path.name.startswith("demo-1.0-")
        ranking = choose(INDEX, Requirement("demo"), ENVIRONMENT, index.fetch)
        (rejected,) = ranking.rejected
        assert rejected.reasons[0].line == (
            "torch: expected torch==2.12.*; found torch 2.11.0+cu130"
        )
    else:
        with pytest.raises(TorchwheelError, match=r"torch: expected torch==2.12.\*; found torch"):
            index.plan()


NINES = "9" * 5000
METADATA = {
    "another version": ("2.0", [], 'expected demo 1.0, as the file is named, found "d'),
    "a long version": (NINES, [], "expected demo 1.0, as the file is named"),
    "a long number": ("1.0", [f"torch>={NINES}"], r"expected a requirement, found \"torch>=9"),
    "a long marker": (
        *("1.0", [f"x; python_version<'{NINES}'"]),
        r"expected a requirement, found \"x; py",
    ),
}


@pytest.mark.parametrize(("version", "requires", "says"), METADATA.values(), ids=METADATA)
def test_metadata_of_another_wheel_or_with_a_long_number(index, version, requires, says):
    index.add(version="1.0", tag=TAG, claims=None, requires=["torch"], metadata=True)
    key = next(key for key in index.fetch.pages if key.endswith(".metadata"))
    index.fetch.pages[key] = wheelmaker.metadata("demo", version, requires)
    with pytest.raises(TorchwheelError, match=says) as caught:
        choose(INDEX, Requirement("demo"), ENVIRONMENT, index.fetch)
    assert len(str(caught.value)) < 400


def test_candidates_of_a_release_are_taken_if_there_is_nothing_else(index):
    index.add(version="1.0rc1", tag=TAG, claims=None, requires=[])
    assert index.plan().downloads[0].path.name.startswith("demo-1.0rc1")


@pytest.mark.parametrize(
    "text",
    ["", "demo[x]", "demo @ https://h/x.whl", "demo; x", "-r x", "to/r", f"demo=={'9' * 5000}"]
    + ["Torch==2.11"],
)
def test_what_can_be_asked_for(text):
    says = "torch itself is for pip" if text.startswith("T") else r"^expected e\.g\."
    with pytest.raises(UsageError, match=says):
        parse_wanted(text)


def test_an_index_without_the_project(index):
    with pytest.raises(TorchwheelError, match="expected the project demo, found none"):
        choose(INDEX, Requirement("demo"), ENVIRONMENT, index.fetch)


def test_a_wheel_with_two_metadata_files_is_refused(index, tmp_path):
    def bend(members):
        members["other-1.dist-info/METADATA"] = b""

    index.add(version="1.0", tag=TAG, claims=None, requires=[], bend=bend)
    with pytest.raises(TorchwheelError, match="expected one METADATA, found 2"):
        index.plan()


def test_the_report_says_what_is_taken_and_why_not_the_others(index):
    index.add(version="1.0+cu130", tag=TAG)
    claims = wheelmaker.stable(toolkit="cu132", toolkit_version="13.2", torch_release="2.12")
    index.add(version="1.0+cu132", tag=TAG, claims=claims, requires=["torch>=2.12"])
    ranking = choose(INDEX, Requirement("demo"), ENVIRONMENT, index.fetch)
    text = ranking_text(ranking, ENVIRONMENT, why=True)
    assert f"takes      demo-1.0+cu130-{TAG}.whl" in text
    assert "  needs    torch>=2.11; CUDA 13.0 for 9.0" in text
    assert f"rejected   demo-1.0+cu132-{TAG}.whl" in text
    assert "torch: expected torch>=2.12; found torch 2.11.0+cu130" in text
    assert ranking_json(ranking, ENVIRONMENT) == ranking_json(ranking, ENVIRONMENT)
    without = dataclasses.replace(ENVIRONMENT, torch=None)
    says = no_torch(choose(INDEX, Requirement("demo==1.0+cu130"), without, index.fetch))
    assert says is not None
    assert "`pip install 'torch>=2.11'`, then run again" in says
    none = choose(INDEX, Requirement("demo==3"), ENVIRONMENT, index.fetch)
    assert none_fits(none).startswith("demo: expected a wheel that fits, found none of 2; the ")
    assert "pip install" not in none_fits(none)


def test_a_torch_that_is_too_old_has_a_remedy(index):
    index.add(version="1.0+cu130", tag=TAG)
    index.add(version="1.0", requires=["torch>=2.6"], claims=wheelmaker.PURE)
    old = environment("2.5.1")
    none = choose(INDEX, Requirement("demo"), old, index.fetch)
    assert none_fits(none).endswith(
        "torch: expected torch>=2.11; found torch 2.5.1; with another torch one fits: "
        "`pip install 'torch>=2.6'` (--why lists all)"
    )


def test_two_names_are_one_line(capsys):
    assert main(["install", "a", "b", "--index", INDEX]) == 2
    says = 'torchwheel: expected one project, found "a", "b"; run it once for each\n'
    assert capsys.readouterr().err == says


def test_claims_of_the_file_are_read(index, tmp_path):
    index.add(version="1.0+cu130", tag=TAG)
    (download,) = index.plan().downloads
    assert read_metadata(download.path, download.wheel).claims == STABLE
