"""Where the files of a release are: the assets of a forge, or any folder of a static web host."""

import dataclasses
import re
from collections.abc import Mapping
from urllib.parse import quote

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import quote as quote_text

TAG = "{tag}"
_ADDRESS = re.compile(r"[A-Za-z0-9._~:/@!$&'()*+,;=%-]+")


@dataclasses.dataclass(frozen=True)
class Store:
    """A store, by the address of a release's folder in it.

    Attributes:
        address: `{tag}` stands for the release's tag, e.g. "https://HOST/releases/{tag}". Without
            a scheme and a leading slash it is relative to the index's root.
    """

    address: str

    def __post_init__(self) -> None:
        if not _ADDRESS.fullmatch(self.address.replace(TAG, "")):
            raise UsageError(
                f'--address: expected e.g. "https://HOST/releases/{TAG}", '
                f"found {quote_text(self.address)}; only {TAG} can be in braces"
            )

    def folder(self, tag: str) -> str:
        """The address of the folder with the files of a release, without a slash at its end."""
        return self.address.replace(TAG, quote(tag)).rstrip("/")


def store_of(address: str | None, environment: Mapping[str, str]) -> Store:
    """The store at an address; without one, the release assets of the forge that runs this job."""
    if address is not None:
        return Store(address)
    server, repository = (
        environment.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY")
    )
    if not server or not repository:
        raise UsageError(
            f"--address: expected the address of a release's files, found none; "
            f"name it, e.g. https://HOST/releases/{TAG}"
        )
    return Store(f"{server}/{repository}/releases/download/{TAG}")


def is_absolute(address: str) -> bool:
    """Whether an address is the same from every page of an index."""
    return address.startswith("/") or "://" in address
