"""`torchwheel check` and `inspect`: what they print and write, SARIF and Markdown included."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elfmaker import cubin, fatbin, linked, module
from torchwheel import cli
from torchwheel.check.gates import GATES, OF_CLAIMS, OF_NAMES
from torchwheel.findings import PAGE, finding_of_wheel, sarif_text, summary_text
from torchwheel_runtime.validate.findings import Finding
from wheelmaker import make_wheel

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden"
SCHEMA = json.loads((Path(__file__).parent / "sarif.json").read_text())
GATE_TEXTS = {"runtime": "Every library.", "run-paths": "The loader."}


def wheel(folder: Path) -> Path:
    library = linked(
        undefined=["aoti_torch_abi_version", "PyList_New"],
        needed=["libtorch.so", "libcudart.so.13", "libc.so.6"],
        run_paths=["$ORIGIN", "/home/me|<b>"],
        sections={
            ".nv_fatbin": fatbin(module(cubin(80)), module(cubin(90, ()), 90)),
            ".nvFatBinSegment": bytes(24),
        },
    )
    return make_wheel(
        folder,
        version="1.0.0+cu126",
        tag="cp312-cp312-manylinux_2_28_x86_64",
        claims=None,
        files={
            "demo/_C.so": library,
            "demo.libs/libx-0a1b2c3d.so.1": linked(),
            "demo-1.0.0+cu126.data/purelib/evil.pth": b"",
            "demo-1.0.0+cu126.data/scripts/pip": b"",
            "torch/_C/nested.py": b"",
            "demo-1.0.0+cu126.dist-info/entry_points.txt": (
                b"[console_scripts]\nls = demo:main\n[torch.backends]\ndemo = demo:start\n"
            ),
        },
    )


def compare(text: str, name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-goldens"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize(("call", "golden"), [((), "inspect.txt"), (("--json",), "inspect.json")])
def test_a_report(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    call: tuple[str, ...],
    golden: str,
) -> None:
    path = wheel(tmp_path)
    assert cli.main(["inspect", *call, str(path)]) == 0
    text = capsys.readouterr().out
    compare(text, golden, request)
    assert call or max(map(len, text.splitlines()[1:])) <= 80


def test_a_report_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "any.so").write_bytes(linked())
    path = str(tmp_path / "any.so")
    assert cli.main(["inspect", path, path]) == 0
    assert capsys.readouterr().out.split("\n\n")[1].startswith("any.so\n")
    assert cli.main(["inspect", "no_such_package_anywhere"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected a file, or a package of this Python, found neither" in line


def test_a_subject_that_is_refused_keeps_none_from_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "any.so").write_bytes(linked())
    (tmp_path / "bad.whl").write_bytes(b"no zip")
    path, bad = str(tmp_path / "any.so"), str(tmp_path / "bad.whl")
    assert cli.main(["inspect", bad, path, bad]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("any.so\n")
    assert [line.count("bad.whl") for line in err.splitlines()] == [1, 1]


def sarif_of(path: Path, *options: str) -> dict[str, Any]:
    """The run in the SARIF of a check that fails, which is valid."""
    sarif = path.with_name("out.sarif")
    assert cli.main(["check", "--sarif", str(sarif), *options, str(path)]) == 1
    content = json.loads(sarif.read_text())
    jsonschema.validate(content, SCHEMA)
    run: dict[str, Any] = content["runs"][0]
    return run


def test_auto_claims_as_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, summary = wheel(tmp_path), tmp_path / "summary.md"
    run = sarif_of(path, "--claims", "auto", "--summary", str(summary), str(path))
    assert capsys.readouterr().out.count("FAILED  run-paths") == 2
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(OF_NAMES)
    found = {result["ruleId"] for result in run["results"]}
    assert found == {"content", "torch-symbols", "runtime", "run-paths"}
    text = summary.read_text()
    assert "6 of 10 gates hold." in text
    assert "/home/me\\|\\<b\\>" in text


def test_claims_of_the_file_as_sarif(tmp_path: Path) -> None:
    run = sarif_of(wheel(tmp_path))
    says = {result["ruleId"]: result["message"]["text"] for result in run["results"]}
    assert "it claims nothing" in says["archs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(OF_CLAIMS)


@pytest.mark.parametrize("claims", ["file", "auto"])
def test_the_refusal_of_a_wheel_that_cannot_be_read_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], claims: str
) -> None:
    path = tmp_path / "demo-1.0.0-py3-none-any.whl"
    path.write_text("no archive")
    out = tmp_path / "found.sarif"
    assert cli.main(["check", "--claims", claims, "--sarif", str(out), str(path)]) == 1
    name, first, *others = capsys.readouterr().out.splitlines()
    assert name == path.name
    assert first.endswith(f"  {path.name}: not a whole zip archive (cut short?): no end record")
    assert {line.split(maxsplit=2)[2] for line in others} == {"not judged"}
    assert out.read_text().count("not a whole zip archive") == 1


def test_a_summary_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_wheel(tmp_path, claims=None)
    call = ["check", "--claims", "auto", "--summary", str(tmp_path / "gone" / "x"), str(path)]
    assert cli.main(call) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "gone" in line


@given(
    st.lists(
        st.builds(
            finding_of_wheel,
            st.sampled_from(list(GATE_TEXTS)),
            st.text(),
            st.sampled_from(["error", "warning"]),
            st.text(),
        ),
        max_size=4,
    ),
    st.text(min_size=1),
)
def test_any_finding_is_valid_sarif_and_plain_markdown(findings: list[Finding], name: str) -> None:
    content = json.loads(sarif_text({name: findings}, GATE_TEXTS, "1.0"))
    jsonschema.validate(content, SCHEMA)
    text = summary_text({name: findings}, GATE_TEXTS)
    lines = [line for line in text.split("\n") if line]
    assert len(lines) == 3 + (2 + len(findings) if findings else 0)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("character", ["\x1b", "*", "\U000e0001", "\\"])
def test_a_long_finding_is_cut_as_it_is_written(character: str) -> None:
    finding = finding_of_wheel("metadata", character * 5000, where=character * 5000)
    assert len(str(finding)) < 2000
    text = summary_text({"demo.whl": [finding]}, GATE_TEXTS)
    assert max(map(len, text.split("\n"))) < 2000


@pytest.mark.parametrize("name", sorted(GATES))
def test_each_gate_has_a_section_of_the_page(name: str) -> None:
    sections = (ROOT / PAGE).read_text().split("\n## ")[1:]
    assert [s.split("\n")[0] for s in sections].count(f"`{name}`") == 1
