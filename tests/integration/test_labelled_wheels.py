"""uv takes the labelled wheel for a driver and a GPU, and pip the plain one: docs/variants.md.

The wheels are stubs with the claims of matrix.yaml's labels. uv is told of a machine by the
variables of NVIDIA's provider, so the table needs no GPU.
"""

import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from installers import DRIVER, GPU, ROOT, Uv, plain_server

from elfmaker import cubin, fatbin, linked, module, ptx
from torchwheel.index.catalogue import Catalogue, read_wheel_entry
from torchwheel.index.groups import groups_of
from torchwheel.index.listing import Store, index_of
from torchwheel.index.serve import serve_in_background
from torchwheel.index.withdrawals import Withdrawal, Withdrawals
from torchwheel.index.writer import IndexedWheel, build_index, write_index
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline.inputs import claims_of
from torchwheel.split.labels import parse_labels
from torchwheel.split.wheels import SplitRequest, split
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.variant_format import LOWER_BOUND, Properties, read_labels, split_name
from torchwheel_runtime.versions import version_numbers
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "variants.md"
GROUP = "cu130/torch2.13"
NOW = "2026-11-28T00:00:00Z"
Golden = Callable[[str | Path, str], None]
TITLES = ("CUDA of the driver", "GPU", "pip", "uv", "uv with the preview feature")
# CUDA of the driver, GPU, and the label that uv takes.
MACHINES = [
    ("13.5", "12.1", "cu13"),
    ("13.2", "12.0", "cu13"),
    ("13.0", "10.3", "cu13"),
    ("13.0", "10.0", "cu13"),
    ("13.0", "9.0", "cu13"),
    ("13.0", "8.9", "cu13"),
    ("13.2", "8.0", "cu13"),
    ("13.0", "7.5", "cu13"),
    ("13.2", "7.0", "cu12"),
    ("13.0", "6.1", "cu12"),
    ("12.9", "9.0", "cu12"),
    ("12.8", "8.9", "cu12"),
    ("12.4", "8.6", "cu12"),
    ("12.0", "7.5", "cu12"),
    ("12.0", "6.0", "cu12"),
    ("12.8", "12.0", "null"),
    ("12.9", "10.0", "null"),
    ("11.8", "9.0", "null"),
    ("11.8", "7.0", "null"),
    ("13.2", "5.2", "null"),
    ("none", "none", "null"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the universal wheel, the pure one and all labelled ones, for this machine."""
    folder = tmp_path_factory.mktemp("labelled")
    wheels = []
    for variant in select(load(ROOT / "matrix.yaml"), ["universal", "universal-*", "pure*"]):
        if variant.platform.endswith("aarch64"):
            continue
        system = f"manylinux_2_17_{platform.machine()}"
        wheels.append(
            make_wheel(
                folder / "dist",
                tag=f"py3-none-{system if variant.native else 'any'}",
                claims=claims_of(variant),
                requires=(),
            )
        )
    claims = [claims for path in wheels if (claims := read_wheel(path).claims)]
    groups = groups_of(claims)
    build_index(list(map(IndexedWheel, wheels, groups)), folder / "index")
    return folder / "index"


@pytest.fixture(scope="module", params=["HTML", "JSON"])
def asked(
    request: pytest.FixtureRequest, index: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Uv]:
    server = plain_server if request.param == "HTML" else serve_in_background
    with server(index) as address:
        yield Uv(tmp_path_factory.mktemp("uv"), f"{address}/{GROUP}/")


def label_of(file: str) -> str:
    """The label of a file, or "plain"."""
    return split_name(file)[1] or "plain"


def test_uv_takes_the_label_of_each_machine(asked: Uv) -> None:
    found = [(*machine, label_of(asked.takes(*machine))) for *machine, _ in MACHINES]
    assert found == MACHINES


def test_uv_installs_each_label(asked: Uv) -> None:
    """It reads variant.json then, too."""
    machines = {label: machine for *machine, label in MACHINES}
    assert {label: asked.installs(*machine) for label, machine in machines.items()} == {
        label: [label] for label in ("cu13", "cu12", "null")
    }


def test_without_the_preview_uv_takes_the_plain_wheel(asked: Uv) -> None:
    assert label_of(asked.takes("13.0", "9.0", variants=False)) == "plain"


def test_pip_takes_the_plain_wheel(index: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", tmp_path / "out"]
    with serve_in_background(index) as address:
        command += ["--isolated", "--index-url", f"{address}/{GROUP}/", "demo"]
        forced = {**os.environ, DRIVER: "13.0", GPU: "9.0"}
        subprocess.run(command, env=forced, capture_output=True, check=True)
    (file,) = (tmp_path / "out").iterdir()
    assert label_of(file.name) == "plain"
    assert file.name.endswith(f"{platform.machine()}.whl")


def test_a_withdrawn_label_is_not_taken(index: Path, tmp_path: Path) -> None:
    """The others of the release are: cu12 serves the machine too."""
    wheels = [read_wheel(path) for path in sorted((index / "files").glob("*.whl"))]
    catalogue = Catalogue("demo", "v1.0.0", tuple(read_wheel_entry(w, NOW) for w in wheels))
    (cu13,) = (wheel.path.name for wheel in wheels if wheel.named.label == "cu13")
    for section, left in (("yanked", True), ("removed", False)):
        own = Withdrawals(**{section: (Withdrawal(cu13, "wrong kernels"),)})
        out = tmp_path / section
        write_index(index_of([catalogue], Store("files"), own), out)
        for file in (index / "files").glob("*.whl*"):
            (out / "files" / file.name).hardlink_to(file)
        page = json.loads((out / GROUP / "demo/index.json").read_text())
        files = {file["filename"]: file for file in page["files"]}
        assert (cu13 in files) is left
        labels = (out / GROUP / "demo/demo-1.0.0-variants.json").read_text()
        assert sorted(read_labels(labels, "x")) == ["cu12", "null", "rocm"]
        with serve_in_background(out) as address:
            (tmp_path / f"uv-{section}").mkdir()
            own_uv = Uv(tmp_path / f"uv-{section}", f"{address}/{GROUP}/")
            assert label_of(own_uv.takes("13.0", "9.0")) == "cu12"


def test_uv_takes_a_split_wheel(tmp_path: Path) -> None:
    """Of those of anybody's wheel, on a page that anybody wrote: the one for the GPU."""
    modules = [module(cubin(arch), arch) for arch in (75, 80, 86, 90)]
    code = fatbin(*modules, module(ptx("sm_90"), 90))
    library = linked(needed=("libcudart.so.13",), sections={".nv_fatbin": code})
    plain = make_wheel(
        tmp_path,
        tag=f"py3-none-manylinux_2_17_{platform.machine()}",
        files={"demo/_C.so": library},
        claims=None,
        requires=(),
    )
    labels = parse_labels(["sm75=7.5", "sm80=8.0", "sm86=8.6", "sm90=9.0+PTX"])
    page = tmp_path / "simple" / "demo"
    split(SplitRequest((plain,), labels, None, page), Quiet())
    plain.rename(page / plain.name)
    links = [f'<a href="{file.name}">{file.name}</a>' for file in page.iterdir()]
    (page / "index.html").write_text("<!DOCTYPE html>\n" + "\n".join(links))
    (tmp_path / "uv").mkdir()
    with plain_server(tmp_path) as address:
        own_uv = Uv(tmp_path / "uv", f"{address}/simple/")
        found = {gpu: label_of(own_uv.takes("13.0", gpu)) for gpu in SPLIT}
        assert found == SPLIT
        assert label_of(own_uv.takes("12.9", "9.0")) == "plain"
        assert own_uv.installs("13.0", "8.9") == ["sm86"]


SPLIT = {
    "7.5": "sm75",
    "8.0": "sm80",
    "8.6": "sm86",
    "8.9": "sm86",
    "9.0": "sm90",
    # uv takes no PTX of another major version.
    "12.0": "plain",
    "7.0": "plain",
}


def test_the_page_has_the_table(golden: Golden) -> None:
    """The rows are those that uv and pip are asked for above."""
    rows = [TITLES, *((driver, gpu, "plain", "plain", label) for driver, gpu, label in MACHINES)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(TITLES))
    head, start, rest = PAGE.read_text().partition("<!-- table -->\n")
    tail = rest[rest.index("<!-- end -->") :]
    golden(PAGE, f"{head}{start}\n" + "\n".join(lines) + f"\n\n{tail}")


# variantlib, which the PEP's authors wrote, as oracle.


@pytest.fixture(scope="module")
def labels(index: Path) -> Mapping[str, Properties]:
    text = (index / GROUP / "demo/demo-1.0.0-variants.json").read_text()
    return read_labels(text, "variants.json")


def test_variantlib_reads_our_names_and_files(index: Path) -> None:
    constants = pytest.importorskip("variantlib.constants")
    from variantlib.variant_dist_info import VariantDistInfo
    from variantlib.variants_json import VariantsJson

    merged = None
    for path in sorted((index / "files").glob("*.whl")):
        match = constants.VALIDATION_WHEEL_NAME_REGEX.fullmatch(path.name)
        usual, label = split_name(path.name)
        assert (match["base_wheel_name"] + ".whl", match["variant_label"]) == (usual, label)
        if label:
            with zipfile.ZipFile(path) as archive:
                text = archive.read("demo-1.0.0.dist-info/variant.json")
            info = VariantDistInfo(text, label)
            assert _sets(info.to_str()) == _sets(text)
            merged = merged or VariantsJson(json.loads(text))
            merged.merge(info)
    text = (index / GROUP / "demo/demo-1.0.0-variants.json").read_bytes()
    assert merged
    assert _sets(VariantsJson(json.loads(text)).to_str()) == _sets(text) == _sets(merged.to_str())


def _sets(text: str | bytes) -> dict[str, dict[tuple[str, str], list[str]]]:
    """The values of each feature by label; variantlib sorts them as texts."""
    return {
        label: {
            (name, feature): sorted(values)
            for name, features in properties.items()
            for feature, values in features.items()
        }
        for label, properties in read_labels(text, "x").items()
    }


def supported(driver: str, gpu: str) -> list[tuple[str, str]]:
    """The values that NVIDIA's provider has for a machine, the best first, as uv gives them."""
    if driver == "none":
        return []
    newest, (major, minor) = version_numbers(driver), version_numbers(gpu)
    bounds = [(one, other) for one in range(newest[0], 10, -1) for other in range(9, -1, -1)]
    lower = [f"{one}.{other}" for one, other in bounds if (one, other) <= newest]
    archs = [f"{major}{one}_real" for one in range(minor, -1, -1)] + [f"{major}0_virtual"]
    return [(LOWER_BOUND, one) for one in lower] + [("sm_arch", one) for one in archs]


def test_variantlib_has_uvs_order(labels: Mapping[str, Properties]) -> None:
    resolver = pytest.importorskip("variantlib.resolver.lib")
    from variantlib.models.variant import VariantDescription, VariantProperty

    described = [VariantDescription.from_dict(of, label) for label, of in labels.items()]
    first = []
    for driver, gpu, _ in MACHINES:
        values = supported(driver, gpu)
        order: dict[str, list[str]] = {}
        for feature, value in values:
            order.setdefault(feature, []).append(value)
        ranked = resolver.sort_and_filter_supported_variants(
            described,
            [VariantProperty("nvidia", *one) for one in values],
            namespace_priorities=["nvidia", "amd"],
            feature_priorities={"nvidia": [LOWER_BOUND, "sm_arch"]},
            property_priorities={"nvidia": order},
        )
        first.append((driver, gpu, ranked[0].label))
    assert first == MACHINES
