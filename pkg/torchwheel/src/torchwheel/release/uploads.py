"""What PyPI refuses at an upload, before anything is published.

PyPI takes a release file by file, and no name twice. So a file that it refuses leaves a release of
which a part is public, and only a new version mends that. The rules are those of its upload, and
what renders a description and knows the classifiers is PyPI's own code.
"""

import email.utils
import io
from collections.abc import Iterator, Sequence
from typing import Any

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name

from torchwheel.index.catalogue import is_address
from torchwheel.inspect.wheel import Wheel, parse_metadata
from torchwheel.release.sdists import Sdist
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.json_files import read_bounded
from torchwheel_runtime.text import quote, shorten_line

MAX_BYTES = 100 << 20
"""Of a file of a project that has not asked PyPI for more."""
_LONGEST_SUMMARY = 512
_LONGEST_LABEL = 32
_RST = "text/x-rst"
"""The form of a description that names none."""


def upload_faults(wheels: Sequence[Wheel], sdists: Sequence[Sdist]) -> Iterator[str]:
    """A line for each reason for which PyPI would refuse one of the files.

    Args:
        wheels: those of the release; one with a local version or a label is not uploaded.
        sdists: those of the release.
    """
    for wheel in wheels:
        if wheel.version.local is None and wheel.named.label is None:
            for fault in (*_wheel_faults(wheel), *_size_faults(wheel.size)):
                yield f"{wheel.path.name}: PyPI refuses it: {fault}"
    for sdist in sdists:
        for fault in (*_sdist_faults(sdist), *_size_faults(sdist.path.stat().st_size)):
            yield f"{sdist.path.name}: PyPI refuses it: {fault}"


def _size_faults(size: int) -> Iterator[str]:
    if size > MAX_BYTES:
        mib = f"{size / (1 << 20):.1f} MiB"
        yield f"expected at most {MAX_BYTES >> 20} MiB, found {mib}; ask PyPI for a larger limit"


def _wheel_faults(wheel: Wheel) -> Iterator[str]:
    for platform in sorted({tag.platform for tag in wheel.tags}):
        if platform.startswith("linux_"):
            yield f"expected a tag such as manylinux_2_28_x86_64, found {platform}"
    yield from metadata_faults(wheel.metadata_bytes)
    folder = next(name for name in wheel.members if name.endswith(".dist-info/METADATA"))
    for name in wheel.metadata.license_files or ():
        # Older builds have it beside METADATA; PyPI looks at this place since version 2.4.
        if wheel.metadata.metadata_version not in _WITHOUT_LICENSE_FOLDER:
            member = folder.replace("METADATA", f"licenses/{name}")
            if member not in wheel.members:
                yield f"License-File: expected {quote(member)} in it, found none"


_WITHOUT_LICENSE_FOLDER = ("1.0", "1.1", "1.2", "2.0", "2.1", "2.2", "2.3")


def _sdist_faults(sdist: Sdist) -> Iterator[str]:
    try:
        raw = read_bounded(sdist.source / "PKG-INFO")
        metadata, _ = parse_metadata(raw)
    except (OSError, TorchwheelError) as error:
        yield f"PKG-INFO cannot be read: {error}"
        return
    yield from metadata_faults(raw)
    expected = f"{canonicalize_name(metadata.name).replace('-', '_')}-{metadata.version}.tar.gz"
    if sdist.path.name != expected:
        yield f"expected the name {expected}"
    for name in metadata.license_files or ():
        if not (sdist.source / name).is_file():
            yield f"License-File: expected {quote(name)} in it, found none"


def metadata_faults(raw: bytes) -> Iterator[str]:
    """What PyPI refuses in METADATA or PKG-INFO."""
    metadata, fault = parse_metadata(raw)
    if fault:
        yield fault
        return
    if metadata.summary and len(metadata.summary) > _LONGEST_SUMMARY:
        found = f"found {len(metadata.summary)}"
        yield f"Summary: expected at most {_LONGEST_SUMMARY} characters, {found}"
    for requirement in metadata.requires_dist or ():
        if requirement.url is not None:
            yield f"Requires-Dist: expected no address, found {quote(str(requirement))}"
    yield from _address_faults(metadata)
    yield from _license_faults(metadata)
    yield from _classifier_faults(metadata.classifiers or ())
    yield from _description_faults(metadata)


def _address_faults(metadata: Metadata) -> Iterator[str]:
    addresses: dict[str, str | None] = {
        "Home-page": metadata.home_page,
        "Download-URL": metadata.download_url,
    }
    for label, place in (metadata.project_urls or {}).items():
        if not 0 < len(label) <= _LONGEST_LABEL:
            expected = f"expected a label of 1 to {_LONGEST_LABEL} characters"
            yield f"Project-URL: {expected}, found {quote(label)}"
        addresses[f"Project-URL {label}"] = place
    for field, address in addresses.items():
        if address is not None and not is_address(address):
            yield f"{field}: expected an address of http or https, found {quote(address)}"
    people = {"Author-email": metadata.author_email, "Maintainer-email": metadata.maintainer_email}
    for field, person in people.items():
        if person and not _is_mail_address(email.utils.parseaddr(person)[1]):
            yield f"{field}: expected an e-mail address, found {quote(person)}"


def _is_mail_address(text: str) -> bool:
    import email_validator  # noqa: PLC0415 - of the extra, and few projects have one

    try:
        return not text or bool(email_validator.validate_email(text, check_deliverability=False))
    except email_validator.EmailNotValidError:
        return False


def _license_faults(metadata: Metadata) -> Iterator[str]:
    """A License-Expression says it all (PEP 639)."""
    if metadata.license_expression is None:
        return
    if metadata.license is not None:
        yield "License: expected none beside License-Expression, found one"
    for classifier in metadata.classifiers or ():
        if classifier.startswith("License ::"):
            yield f"Classifier: expected none beside License-Expression, found {quote(classifier)}"


def _classifier_faults(classifiers: Sequence[str]) -> Iterator[str]:
    if not classifiers:
        return
    import trove_classifiers  # noqa: PLC0415 - of the extra

    deprecated = trove_classifiers.deprecated_classifiers

    for classifier in classifiers:
        if classifier.startswith("Private ::"):
            yield f"Classifier: {quote(classifier)} keeps it from PyPI on purpose"
        elif classifier in deprecated:
            instead = " or ".join(deprecated[classifier]) or "none"
            yield f"Classifier: expected {instead}, found {quote(classifier)}, which is deprecated"
        elif classifier not in trove_classifiers.classifiers:
            yield f"Classifier: expected one that PyPI knows, found {quote(classifier)}"


def _description_faults(metadata: Metadata) -> Iterator[str]:
    text = metadata.description
    if not text or not text.strip():
        return
    kind, _, _ = (metadata.description_content_type or _RST).partition(";")
    # Plain text and Markdown render whatever they hold.
    if kind.strip().lower() == _RST and (problem := _rst_problem(text)):
        unnamed = "" if metadata.description_content_type else ", as its content type is unset"
        yield f"Description: expected reStructuredText{unnamed}; {problem}"


def _rst_problem(text: str) -> str:
    """Why PyPI cannot render reStructuredText; empty if it can."""
    from readme_renderer import rst  # noqa: PLC0415 - of the extra

    warnings = io.StringIO()
    rendered: Any = rst.render(text, stream=warnings)
    if rendered is not None:
        return ""
    lines = warnings.getvalue().strip().splitlines()
    return shorten_line(lines[0]) if lines else "it does not render"
