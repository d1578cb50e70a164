"""The flavour `ordinary`: a project's own build, a variant for each torch, Python and toolkit."""

import contextlib
import json
import re
from pathlib import Path

import pytest

from torchwheel.matrix.document import MatrixError
from torchwheel.matrix.forms import ProjectSource, parse_source
from torchwheel.matrix.kernel_builds import select_kernels
from torchwheel.matrix.load import load, parse
from torchwheel.matrix.render import MatrixPlan, matrix_text
from torchwheel.matrix.variants import resolve, select
from torchwheel.pipeline.cibuildwheel import requirements_to_try
from torchwheel.pipeline.wheels import with_archs
from torchwheel_runtime.errors import UsageError

HERE = Path(__file__).parent
TEXT = (HERE / "ordinary.yaml").read_text()
MATRIX = load(HERE / "ordinary.yaml")


def ids(text: str) -> list[str]:
    return [variant.id for variant in resolve(parse(text, "matrix.yaml"))]


def lines_of(text: str) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        parse(text, "matrix.yaml")
    return str(caught.value).splitlines()


def test_a_variant_for_each_torch_python_and_toolkit():
    assert ids(TEXT) == [
        *("cu124-torch2.6-cp311", "cu124-torch2.6-cp312"),
        *("cu130-torch2.13-cp311", "cu130-torch2.13-cp312"),
    ]
    variant = select(MATRIX, ["cu130-torch2.13-cp312"])[0]
    assert (variant.abi, variant.ordinary, variant.native) == ("aten", True, True)
    assert (variant.local, variant.torch_range) == ("cu130torch2.13", "==2.13.*")


@pytest.mark.parametrize(("python", "tag"), [("abi3", "abi3"), ("any", "py3")])
def test_a_wheel_for_many_pythons_is_built_once_for_each_torch(python, tag):
    text = TEXT.replace("ordinary: {}", f"ordinary: {{python: {python}}}")
    assert ids(text) == [f"cu124-torch2.6-{tag}", f"cu130-torch2.13-{tag}"]
    assert {variant.python for variant in resolve(parse(text, "m"))} == {None}


def test_later_torch_releases_are_left_out_on_request():
    text = TEXT.replace("ordinary: {}", 'ordinary: {through: "2.6"}')
    assert lines_of(text) == [
        "matrix.yaml:24: toolkits.cu130.abis[0]: no release under torch lists cu130; add it there "
        "or drop ordinary"
    ]


@pytest.mark.parametrize(
    ("archs_by", "arch", "torch", "refused"),
    [
        ("environment", "8.8", "2.13", True),
        ("environment", "10.0f+PTX", "2.13", True),
        ("environment", "12.1f", "2.14", True),
        ("environment", "10.3a", "2.13", False),
        # nvcc gets these from the project's own flags.
        ("declared", "8.8", "2.13", False),
        ("replaced", "10.0f", "2.13", False),
    ],
)
def test_an_arch_that_torch_refuses_is_refused_before_a_build(archs_by, arch, torch, refused):
    text = TEXT.replace("archs_by: replaced", f"archs_by: {archs_by}").replace("2.13", torch)
    head, cu130 = text.split("  cu130:")
    text = f"{head}  cu130:{cu130.replace('9.0', arch)}"
    if not refused:
        assert len(ids(text)) == 4
        return
    assert lines_of(text) == [
        f'matrix.yaml:25: toolkits.cu130.archs[1]: "{arch}" is refused by the BuildExtension of '
        f"torch {torch}; take it out, or, where the project's own flags or CMake name the archs, "
        "write build.archs_by: declared"
    ]


def test_archs_of_the_command_line_are_held_to_torch_too():
    matrix = parse(TEXT.replace("archs_by: replaced", "archs_by: environment"), "matrix.yaml")
    with pytest.raises(UsageError, match=r'^--archs: "8\.8" is refused by the BuildExtension of'):
        with_archs(matrix, select(matrix, ["cu130-torch2.13-cp312"]), ["8.8"])


def test_jobs_compile_the_shards_of_a_variant_and_one_links_them():
    more = "runners: {linux_x86_64: {build: [ubuntu-24.04]}}\n"
    matrix = parse(TEXT.replace("  archs_by", "  shards: 3\n  archs_by") + more, "matrix.yaml")
    variants = select(matrix, ["cu130-torch2.13-cp312", "cu130-torch2.13-cp311"])
    jobs = json.loads(matrix_text(MatrixPlan(matrix, variants), "kernels"))["include"]
    assert [(job["kernels"], job["shard"]) for job in jobs] == [
        (variant.id, f"{number}/3") for variant in variants for number in (1, 2, 3)
    ]
    linking = json.loads(matrix_text(MatrixPlan(matrix, variants[:1]), "github"))["include"][0]
    artifacts = [job["artifact"] for job in jobs[:3]]
    assert linking["kernels"] == f"{{{','.join(artifacts)}}}"
    assert [one.id for one in select_kernels(matrix, ["*-cp312"])] == [
        *("cu124-torch2.6-cp312", "cu130-torch2.13-cp312")
    ]


def test_without_shards_no_job_compiles_for_another():
    with pytest.raises(UsageError, match=r"compiled as a whole; build.shards in matrix.yaml says"):
        select_kernels(MATRIX, ["cu130-torch2.13-cp312"])


def test_what_is_left_out_has_defaults():
    assert select(MATRIX, ["all"]) == select(MATRIX, ["default"]) == resolve(MATRIX)
    assert MATRIX.gates.max_size_mib == 512
    assert (MATRIX.containers.base, MATRIX.containers.glibc) == ("bullseye", "2.28")
    assert "4 of 4 variants" in matrix_text(MatrixPlan(MATRIX, resolve(MATRIX)), "table")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (".", ProjectSource("folder", ".")),
        ("ext/conv", ProjectSource("folder", "ext/conv")),
        ("ext/conv-1.0.tar.gz", ProjectSource("sdist", "ext/conv-1.0.tar.gz")),
        ("causal-conv1d==1.5.2", ProjectSource("release", "causal-conv1d", "1.5.2")),
        ("git+https://h.test/a/b@v1", ProjectSource("git", "https://h.test/a/b", "v1")),
        (
            "git+https://h.test/a@v1.0+cu12#subdirectory=hopper",
            ProjectSource("git", "https://h.test/a", "v1.0+cu12", "hopper"),
        ),
        (
            "git+https://h.test/a@x/v2#egg=conv&subdirectory=ext/conv",
            ProjectSource("git", "https://h.test/a", "x/v2", "ext/conv"),
        ),
        *(
            (text, ProjectSource("folder", text))
            for text in (
                "git+https://h.test/a@v1#subdirectory=../x",
                "git+https://h.test/a@v1#subdirectory=/x",
                "git+https://h.test/a@v1#subdirectory=",
                "git+https://h.test/a@v~1",
                "git+https://h.test/a#subdirectory=x",
            )
        ),
        # A reference that begins with a dash would be an option of git.
        ("git+https://h.test/a@-x", ProjectSource("folder", "git+https://h.test/a@-x")),
    ],
)
def test_the_places_of_sources(text, source):
    assert parse_source(text) == source
    document = re.sub(r"(?m)^(  source: ).*$", lambda line: f"{line[1]}'{text}'", TEXT)
    refused = source.kind == "folder" and text.startswith("git+")
    says = pytest.raises(MatrixError, match="is not a path inside the project")
    with says if refused else contextlib.nullcontext():
        parse(document, "matrix.yaml")


def test_a_project_of_the_stable_abi_has_one_variant_for_every_torch():
    text = TEXT.replace("ordinary: {}", 'ordinary: {python: abi3, stable: "2.6"}')
    assert ids(text) == ["cu124-stable-abi3", "cu130-stable-abi3"]
    variant = resolve(parse(text, "m"))[1]
    assert (variant.abi, variant.ordinary, variant.built_with) == ("stable", True, "2.13")
    assert (variant.local, variant.torch_range) == ("cu130", ">=2.6")
    assert requirements_to_try(parse(text, "m"), variant)[0] == "torch==2.13.*"
    each = TEXT.replace("ordinary: {}", 'ordinary: {stable: "2.6"}')
    assert "cu130-stable-cp312" in ids(each)


@pytest.mark.parametrize(
    ("stable", "line"),
    [
        ("2.10", '28: torch["2.6"]: is older than 2.10, whose stable ABI the project keeps to'),
        ("2.99", "5: abis.ordinary.stable: torch 2.99 is not known; known: 2.6, "),
    ],
)
def test_a_floor_that_cannot_be(stable, line):
    text = TEXT.replace("ordinary: {}", f'ordinary: {{stable: "{stable}"}}')
    assert line in lines_of(text)[0]
