"""`torchwheel inspect --stable-abi`: what keeps a library from one wheel for every torch.

Each symbol of torch's C++ API comes of a construct of the source. data/stable_abi.json has the
constructs and what replaces them; the table of torch's symbols tells since which release.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterator

from torchwheel import data
from torchwheel.check.libraries import complete_since
from torchwheel.check.named_claims import NamedCase, torch_names
from torchwheel.check.torch_symbols import ExportTable, export_table
from torchwheel_runtime.inspect.elf import SHIMS, qualified_name
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.text import WIDTH, escape, hanging_lines, join_names, shorten
from torchwheel_runtime.versions import version_numbers

FILE = "stable_abi.json"
SCHEMA = 1
_NAMED = 8
_OF_TYPE = re.compile(r"^_ZT(?:[VISHW]|hn?\d+_)N?")
"""Virtual tables, type information and thread-local variables of a class or a namespace."""


@dataclasses.dataclass(frozen=True)
class Construct:
    """A construct of the source that leaves symbols of torch's C++ API in a library.

    Attributes:
        source: as one writes it.
        symbols: patterns of their qualified names.
        use: what replaces it; None if nothing does.
        header: the header of the replacement; empty if it is not torch's.
        headers: the first torch whose header has it.
        shims: the C functions of torch that it calls.
        target: the TORCH_TARGET_VERSION that the header asks for, where the shims are older.
        instead: what to do where nothing replaces it.
    """

    source: str
    symbols: tuple[str, ...] = ()
    use: str | None = None
    header: str = ""
    headers: str = ""
    shims: tuple[str, ...] = ()
    target: str = ""
    instead: str = ""


UNKNOWN = Construct("others", instead="no row of the table knows them: look them up in the source")


@dataclasses.dataclass(frozen=True)
class _Table:
    comment: tuple[str, ...]
    oldest: str
    constructs: tuple[Construct, ...]


@functools.cache
def replacements() -> _Table:
    """The table of the data file."""
    return read_json(data.FOLDER / FILE, _Table, schema=1, do="reinstall torchwheel")


def construct_of(symbol: str) -> Construct:
    """The construct that a symbol comes of."""
    found = _rows().fullmatch(source_name(symbol))
    return replacements().constructs[(found.lastindex or 1) - 1] if found else UNKNOWN


@functools.cache
def _rows() -> re.Pattern[str]:
    """One group for each row: a hostile wheel may have 600,000 symbols to sort."""
    rows = ("|".join(map(re.escape, row.symbols)) for row in replacements().constructs)
    groups = "|".join(f"({row})" for row in rows)
    return re.compile(groups.replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def source_name(symbol: str) -> str:
    """The qualified name of a function, a variable or a class, without its arguments."""
    return qualified_name(_OF_TYPE.sub("_ZN", symbol))


@dataclasses.dataclass(frozen=True)
class Outside:
    """What a construct leaves in the libraries of a wheel.

    Attributes:
        construct: the construct.
        symbols: the mangled names, sorted.
        libraries: the libraries that need them.
        since: the first torch that runs the replacement; None if nothing replaces it.
    """

    construct: Construct
    symbols: tuple[str, ...]
    libraries: tuple[str, ...]
    since: str | None


@dataclasses.dataclass(frozen=True)
class StableAbiReport:
    """How far the libraries of a wheel are from the stable ABI.

    Attributes:
        title: the wheel, package or library.
        inside: C symbols of torch that they need, all of them in the stable ABI.
        outside: one entry for each construct, those with a replacement first.
        since: the first torch that runs them once all that can be replaced is replaced.
        headers: the first torch with the headers for that.
        unread: libraries that cannot be read.
    """

    title: str
    inside: int
    outside: tuple[Outside, ...]
    since: str | None
    headers: str
    unread: tuple[str, ...] = ()

    @property
    def remains(self) -> tuple[Outside, ...]:
        """What nothing replaces."""
        return tuple(one for one in self.outside if one.construct.use is None)


def read_stable_abi(case: NamedCase, table: ExportTable | None = None) -> StableAbiReport:
    """Sort the symbols of torch in a wheel's libraries by the constructs that they come of."""
    table = table or export_table()
    symbols: dict[Construct, set[str]] = {}
    libraries: dict[Construct, set[str]] = {}
    inside: set[str] = set()
    for library in case.facts.libraries:
        for name in torch_names(library, case.facts.libraries, table):
            if name.startswith(SHIMS):
                inside.add(name)
                continue
            construct = construct_of(name)
            symbols.setdefault(construct, set()).add(name)
            libraries.setdefault(construct, set()).add(library.name)
    oldest = replacements().oldest
    outside = [
        Outside(
            one,
            tuple(sorted(names)),
            tuple(sorted(libraries[one])),
            _newest(oldest, one.target, complete_since(one.shims, table)) if one.use else None,
        )
        for one, names in symbols.items()
    ]
    outside.sort(
        key=lambda one: (one.construct.use is None, -len(one.symbols), one.construct.source)
    )
    sinces = [one.since for one in outside if one.since]
    own = complete_since(inside, table)
    since = None if inside and own is None else _newest(oldest, own, *sinces)
    unread = tuple(library.name for library in case.facts.libraries if library.problem)
    headers = _newest(oldest, *(one.construct.headers for one in outside if one.construct.use))
    return StableAbiReport(case.facts.title, len(inside), tuple(outside), since, headers, unread)


def _newest(*releases: str | None) -> str:
    return max(filter(None, releases), key=version_numbers)


def stable_abi_text(report: StableAbiReport) -> str:
    """The report; every line is printable."""
    return "".join(f"{escape(line)}\n" for line in _lines(report))


def _row(name: str, text: str) -> list[str]:
    return hanging_lines(f"{name:<11}", text)


def _lines(report: StableAbiReport) -> Iterator[str]:
    yield report.title
    for name in report.unread:
        yield from _row("not read", name)
    for one in report.outside:
        construct, number = one.construct, len(one.libraries)
        where = one.libraries[0] if number == 1 else f"{number} libraries"
        yield from _row("uses", f"{construct.source}, in {where}")
        yield from _row("  symbols", _names(one.symbols))
        if construct.use:
            yield from _row("  replace", f"{construct.use}{_place(one)}")
        else:
            yield from _row("  remains", construct.instead)
    yield "-" * WIDTH
    yield from _row("stable ABI", _summary(report))


def _place(one: Outside) -> str:
    if not one.construct.header:
        return ""
    return (
        f"; {one.construct.header} of torch {one.construct.headers}, runs with torch {one.since} "
        "and later"
    )


def _names(symbols: Collection[str]) -> str:
    names = sorted({shorten(source_name(symbol)) for symbol in symbols})
    more = f" and {len(names) - _NAMED} more, which --json lists" if len(names) > _NAMED else ""
    return f"{len(symbols)}: {join_names(names[:_NAMED])}{more}"


def _summary(report: StableAbiReport) -> str:
    later = f"torch {report.since} and later" if report.since else "no torch that is known"
    if report.unread:
        return f"not judged: {len(report.unread)} of its libraries cannot be read"
    if not report.outside:
        if not report.inside:
            return "they need nothing of torch"
        return f"they keep to it, with {report.inside} C symbols: one wheel serves {later}"
    count = sum(len(one.symbols) for one in report.outside)
    left = sum(len(one.symbols) for one in report.remains)
    text = f"{count} symbols are outside, {report.inside} in it; {count - left} can be replaced"
    text += f": built with the headers of torch {report.headers}, one wheel serves {later}"
    return f"{text}, once the {left} that remain are gone" if left else text


def stable_abi_json(report: StableAbiReport) -> str:
    """The report for programs: byte-stable for equal facts."""
    content = {
        "schema": SCHEMA,
        "title": report.title,
        "inside": report.inside,
        "since": report.since,
        "headers": report.headers,
        "unread": report.unread,
        "outside": [
            {
                "source": one.construct.source,
                "use": one.construct.use,
                "header": one.construct.header,
                "headers": one.construct.headers,
                "since": one.since,
                "instead": one.construct.instead,
                "symbols": one.symbols,
                "libraries": one.libraries,
            }
            for one in report.outside
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
