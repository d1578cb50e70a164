"""pip and uv keep an installed torch and install what fits: the table of docs/installers.md."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from installers import (
    PYPI,
    ROOT,
    UPLOADED,
    Answer,
    Installers,
    Question,
    make_indexes,
    plain_server,
)

from torchwheel.index.groups import torch_builds
from torchwheel.index.serve import serve_in_background
from torchwheel_runtime.arch.releases import torch_releases

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "installers.md"
TORCHES = [f"{minor}.0" for minor in torch_releases()]
NEWEST, OLDEST = "cu132/torch2.15", "cu124/torch2.6"
UNIVERSAL = "fusedops-1.0.0-py3-none-manylinux_2_17_x86_64.whl"
PURE = "fusedops-1.0.0-py3-none-any.whl"
ARM64 = "fusedops-1.0.0-py3-none-manylinux_2_17_aarch64.whl"
PLATFORMS = {
    "arm64 Linux": ("aarch64-unknown-linux-gnu", "manylinux_2_17_aarch64"),
    "macOS": ("aarch64-apple-darwin", "macosx_11_0_arm64"),
    "Windows": ("windows", "win_amd64"),
    "musl": ("x86_64-unknown-linux-musl", "musllinux_1_2_x86_64"),
}
TITLES = ("torch before", "installer", "from", "installs", "torch after")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_indexes(tmp_path_factory.mktemp("indexes"), TORCHES)


@pytest.fixture(scope="module")
def installers(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installers]:
    with serve_in_background(out) as address:
        yield Installers(tmp_path_factory.mktemp("installers"), address)


@pytest.fixture(scope="module")
def groups(out: Path) -> list[str]:
    pages = (out / "index").glob("**/fusedops/index.json")
    return sorted(str(page.parents[1].relative_to(out / "index")) for page in pages)


def environments(groups: Sequence[str]) -> dict[str | None, tuple[str, str]]:
    """Each torch as it is published, with its own group and the group of its toolkit."""
    found: dict[str | None, tuple[str, str]] = {None: ("cpu", "cu130")}
    for torch in TORCHES:
        found[f"{torch}+cpu"] = ("cpu", "cu130")
        for build in torch_builds():
            if f"{build.torch}.0" == torch and build.group in groups:
                found[f"{torch}+{build.toolkit.name}"] = (build.group, build.toolkit.name)
    return found


def test_a_few_of_them_keep_their_torch(installers: Installers) -> None:
    """The grid at night has more than 300 of these."""
    questions = [
        Question(None),
        Question("2.6.0+cu124", "cu124/torch2.6"),
        Question("2.8.0+cu128", "cu130/torch2.11"),
        Question("2.11.0+cpu", NEWEST),
    ]
    for ask in (installers.uv, installers.pip):
        for question, answer in zip(questions, ask(questions), strict=True):
            expected = (UNIVERSAL, question.torch or TORCHES[-1])
            assert (answer.wheel, answer.torch) == expected, f"{question}: {answer.says}"


@pytest.mark.nightly
def test_an_installed_torch_is_never_changed(
    installers: Installers, groups: list[str], golden: Callable[[Path, str], None]
) -> None:
    asked = environments(groups)
    for_uv = [
        Question(torch, group)
        for torch, own in asked.items()
        for group in dict.fromkeys((PYPI, *own, NEWEST, OLDEST))
    ]
    for_pip = [
        Question(torch, group)
        for torch, own in asked.items()
        for group in dict.fromkeys((PYPI, own[0], NEWEST))
    ]
    on_others = [
        Question(None, group, platform=platform)
        for group in (PYPI, "cu130")
        for platform in PLATFORMS.values()
    ]
    rows = [
        *zip(for_uv, ["uv"] * len(for_uv), installers.uv(for_uv), strict=True),
        *zip(for_pip, ["pip"] * len(for_pip), installers.pip(for_pip), strict=True),
        *zip(on_others, ["uv"] * len(on_others), installers.uv(on_others), strict=True),
        *zip(on_others, ["pip"] * len(on_others), installers.pip(on_others), strict=True),
    ]
    assert len(rows) > 300
    for question, installer, answer in rows:
        what = f"{installer}, {question}: {answer.says}"
        assert answer.torch == (question.torch or TORCHES[-1]), what
        elsewhere = ARM64 if question.platform == PLATFORMS["arm64 Linux"] else PURE
        assert answer.wheel == (elsewhere if question.platform else UNIVERSAL), what
    text = PAGE.read_text(encoding="utf-8")
    table = f"{len(rows)} questions.\n\n{table_of(rows)}\n"
    golden(PAGE, re.sub(r"(<!-- table -->\n).*", lambda found: found[1] + table, text, flags=re.S))


def table_of(rows: Sequence[tuple[Question, str, Answer]]) -> str:
    """A line for each environment and installer; the groups that give the same are in one cell."""
    platforms = {platform: name for name, platform in PLATFORMS.items()}
    cells: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for question, installer, answer in rows:
        before = question.torch or "none"
        if question.platform:
            before += f", on {platforms[question.platform]}"
        kinds = {UNIVERSAL: "universal", ARM64: "universal for arm64", PURE: "pure"}
        installs = kinds.get(answer.wheel or "", answer.wheel or "nothing")
        after = "unchanged" if answer.torch == question.torch else answer.torch or "none"
        cells[before, installer, installs, after].append(question.group)
    lines = [TITLES, ("---",) * len(TITLES)]
    order = list(dict.fromkeys(before for before, *_ in cells))
    for key in sorted(cells, key=lambda key: order.index(key[0])):
        before, installer, installs, after = key
        lines.append((before, installer, " · ".join(cells[key]), installs, after))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@pytest.mark.nightly
def test_no_group_changes_torch(installers: Installers, groups: list[str]) -> None:
    questions = [Question("2.8.0+cu128", group) for group in groups]
    assert len(questions) > 50
    for ask in (installers.uv, installers.pip):
        for question, answer in zip(questions, ask(questions), strict=True):
            assert (answer.wheel, answer.torch) == (UNIVERSAL, "2.8.0+cu128"), question.group


@pytest.mark.nightly
def test_plain_pages_change_no_torch_either(out: Path, tmp_path: Path) -> None:
    questions = [
        Question(torch, group)
        for torch in (None, "2.6.0+cu124", "2.8.0+cu128", "2.11.0+rocm7.2")
        for group in (PYPI, "cu130/torch2.11", "cu130", OLDEST)
    ]
    with plain_server(out) as address:
        plain = Installers(tmp_path, address)
        for ask in (plain.uv, plain.pip):
            for question, answer in zip(questions, ask(questions), strict=True):
                expected = (UNIVERSAL, question.torch or TORCHES[-1])
                assert (answer.wheel, answer.torch) == expected, f"{question}: {answer.says}"


def test_a_small_wheel_is_installed_by_its_version(installers: Installers) -> None:
    small = "fusedops-1.0.0+cu130-py3-none-manylinux_2_17_x86_64.whl"
    questions = [
        Question(torch, "cu130/torch2.11", "fusedops==1.0.0+cu130")
        for torch in ("2.11.0+cu130", "2.8.0+cu128")
    ]
    for ask in (installers.uv, installers.pip):
        fits, other = ask(questions)
        assert (fits.wheel, fits.torch) == (small, "2.11.0+cu130")
        # Who asks for it gets the torch that it needs. So these questions can tell a change.
        assert (other.wheel, other.torch) == (small, TORCHES[-1])
    # The version without a local part is not the small wheel's, for either installer.
    exact = [Question("2.11.0+cu130", "cu130", "fusedops==1.0.0")]
    assert [a.wheel for a in (*installers.uv(exact), *installers.pip(exact))] == [UNIVERSAL] * 2


@pytest.mark.parametrize("group", [PYPI, "cu130/torch2.11"])
def test_the_upload_time_is_respected(installers: Installers, group: str) -> None:
    for ask, option in (
        (installers.uv, "--exclude-newer"),
        (installers.pip, "--uploaded-prior-to"),
    ):
        day = UPLOADED.removesuffix("T00:00:00Z")
        before, after = ask(
            [
                Question("2.8.0+cu128", group, more=(option, f"{day}T{time}Z"))
                for time in ("00:00:00", "00:00:01")
            ]
        )
        assert before.wheel is None
        assert (after.wheel, after.torch) == (UNIVERSAL, "2.8.0+cu128")
