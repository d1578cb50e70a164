"""Which pages of the index a wheel is on: one group per toolkit, one per toolkit and torch."""

from collections.abc import Iterable, Mapping, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError

CPU = "cpu"


def groups_of(claims: Claims, torch_releases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The groups of a wheel, e.g. ("cu130", "cu130/torch2.11").

    The pure wheel is in every group, not in `cpu` alone. pip sorts `1.0.0+cu130` above `1.0.0`,
    so wherever a binary wheel's tags and torch range fit it wins, and elsewhere (aarch64, say,
    or an older torch) the same command still installs: the pure wheel is the fallback.

    Args:
        claims: What the wheel says of itself.
        torch_releases: Toolkit names by torch release, e.g. {"2.11": ["cu130"]}.
    """
    every = sorted(torch_releases, key=Version)
    fitting = [one for one in every if SpecifierSet(claims.torch).contains(one, prereleases=True)]
    if claims.abi == "pure":
        toolkits = sorted({name for names in torch_releases.values() for name in names})
        pairs = [
            f"{name}/torch{one}" for name in toolkits for one in _of(name, fitting, torch_releases)
        ]
        return tuple(sorted({CPU, *toolkits, *pairs}))
    if claims.local is None:
        raise TorchwheelError(
            f"variant {claims.variant}: an {claims.abi} wheel needs a local version"
        )
    # "cu124torch2.6" is toolkit cu124 for torch 2.6 alone.
    toolkit = claims.local.partition("torch")[0]
    pairs = [f"{toolkit}/torch{one}" for one in _of(toolkit, fitting, torch_releases)]
    return tuple(pairs) if claims.abi == "aten" else (toolkit, *pairs)


def everywhere(groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """All groups that any wheel is in: those of a companion, which every wheel may require."""
    return tuple(sorted({name for names in groups for name in names}))


def _of(
    toolkit: str, releases: Sequence[str], torch_releases: Mapping[str, Sequence[str]]
) -> list[str]:
    return [release for release in releases if toolkit in torch_releases[release]]
