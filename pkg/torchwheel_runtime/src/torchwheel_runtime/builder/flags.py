"""An extension's own flags: which ones a target gets, and which are refused.

Standard library only where an extension's import reaches it.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchwheel_runtime.errors import UsageError

if TYPE_CHECKING:  # an import of an extension chooses no flags
    from torchwheel_runtime.arch.releases import ToolkitRelease


@dataclasses.dataclass(frozen=True)
class Flags:
    """Flags that follow those of every build. Each is one word of a command; no shell reads it.

    Attributes:
        cxx: for C++ files, e.g. ("-O3",).
        cuda: for device code, to nvcc, e.g. ("--use_fast_math",).
        hip: for device code, to hipcc, e.g. ("-ffast-math",).
        link: for the linker, e.g. ("-Wl,-z,now",).
        libraries: names of libraries as after -l, e.g. ("aio",).
        library_dirs: folders of such libraries, relative to the source folder. Libraries of the
            toolkit and of the system are found without.
    """

    cxx: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    hip: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()

    def __add__(self, other: "Flags") -> "Flags":
        mine, theirs = self.words(), other.words()
        return Flags(**{name: mine[name] + theirs[name] for name in mine})

    def words(self) -> dict[str, tuple[str, ...]]:
        """The words of each field by its name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


NO_FLAGS = Flags()


@dataclasses.dataclass(frozen=True)
class Probe:
    """Flags that are used if the C++ compiler can build a small program with them.

    Attributes:
        name: names it in messages, e.g. "aio".
        flags: the flags. Those of device compilers are not tried, but depend on the answer too.
        function: a C function that the program calls, e.g. "io_submit"; none if the flags alone
            are tried.
        cpu: features that this machine's CPU must have, as /proc/cpuinfo writes them, e.g.
            ("avx2", "fma"). Such flags are for a build at first use alone: a wheel runs on other
            CPUs.
    """

    name: str
    flags: Flags
    function: str = ""
    cpu: tuple[str, ...] = ()


# Patterns are compiled when they are needed: an import has no use for them.
_TOOLKIT = r"(cuda|rocm)((?:[<>=!~]=?|===).+)?"


def flags_of_toolkit(by_toolkit: Mapping[str, Flags], release: "ToolkitRelease") -> Flags:
    """The flags whose conditions, e.g. "rocm" or "cuda>=12.8,<13", hold for a toolkit.

    Raises:
        UsageError: a condition is malformed.
    """
    # Late, because most extensions have no such flags.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    flags = NO_FLAGS
    for condition, further in by_toolkit.items():
        found = re.fullmatch(_TOOLKIT, condition.replace(" ", ""))
        try:
            releases = SpecifierSet(found[2] or "") if found else None
        except InvalidSpecifier:
            releases = None
        if found is None or releases is None:
            raise UsageError(
                f"Extension.toolkit_flags: expected cuda or rocm and a range of releases, found "
                f'{condition!r}; write e.g. "cuda>=12.8"'
            )
        if found[1] == release.backend and release.version in releases:
            flags += further
    return flags


# Patterns of flags that an extension must not give, each with the reason and what to do.
# docs/runtime.md has what was measured.
_REFUSALS = (
    (
        r"@.*|-(optf|-options-file)(=.*)?|--?specs(=.*)?|-f(pass-)?plugin=.*",
        "reads further flags or code from a file that no check and no cache key sees",
        "name the flags themselves",
    ),
    (
        r"-static-(libstdc\+\+|libgcc)|-static",
        "the ABI flavour decides what is static",
        "take it out",
    ),
    (
        r"-G|--device-debug|-lineinfo|--generate-line-info",
        "the library would name folders of this machine, and no gate could read its GPU code",
        "take it out",
    ),
    (
        r"-(arch|gencode|code)(=.*)?"
        r"|--(gpu-architecture|gpu-code|generate-code|offload-arch|cuda-gpu-arch)(=.*)?",
        "the wheel would have other GPU code than it claims",
        "name archs in the matrix or in TORCH_CUDA_ARCH_LIST, PYTORCH_ROCM_ARCH",
    ),
    (
        r"-m(arch|tune|cpu)=native",
        "other machines may have another CPU than the one that builds",
        "name the features in a Probe with `cpu`",
    ),
    (
        r"(-[DU]|--(un)?define-macro=)_GLIBCXX_USE_CXX11_ABI(=.*)?",
        "the C++ ABI is torch's",
        "take it out",
    ),
    (
        r"-fsanitize(=.*)?",
        "the library would need a sanitizer's runtime, which a wheel cannot bring",
        "take it out",
    ),
    (
        r"-lcudart(_static)?|-?-cudart(=.*)?",
        "CUDA's runtime is linked already, as a static library",
        "take it out",
    ),
    (
        r"(-Wl,)?(-+rpath|-R)([=,].*)?|-{1,2}(version-script|soname|script)([=,].*)?|-[hT].*",
        "the loader and the gates go by the library's own name, exports and run path",
        "take it out",
    ),
    (
        r"-[coxESM]|-M[MFDGPQT]+|-o.+|-{1,2}(shared|dryrun|keep|ptx|cubin|fatbin|cuda|lib|run)(=.*)?"
        r"|-(dlink|dc|dw)|--(output-file|output-directory|compile|device-(link|c|w)|optix-ir)(=.*)?",
        "it says what the build makes, which the recipe decides",
        "take it out",
    ),
    (
        r"-ccbin(=.*)?|--(compiler-bindir|gcc-toolchain|gcc-install-dir|cuda-path|rocm-path)(=.*)?",
        "the builder chooses the compiler and the toolkit",
        "take it out",
    ),
    (
        r"(-[ILB]|-{1,2}(isystem|iquote|idirafter|isysroot|include|imacros|sysroot|include-path"
        r"|pre-include|system-include|include-directory|library-path|library-directory))"
        r"=?(/.*|(.*/)?\.\.(/.*)?)",
        "no cache key sees what lies outside the extension's sources",
        "put it there, and name its folder in include_dirs or library_dirs",
    ),
)
_NESTED = (
    r"-(?:W[alp],|X(?:compiler|linker|preprocessor|assembler)=|-(?:compiler|linker)-options=)(.*)"
)
_NEXT_WORD = (
    r"-[DUILBl]|-(isystem|iquote|idirafter|isysroot|include|imacros)"
    r"|-X(compiler|linker|preprocessor|assembler)"
    r"|--(un)?define-macro|--(include-path|pre-include|system-include|library-path)"
    r"|--(compiler|linker)-options"
)
"""Flags whose argument may be the next word."""
_NAME = r"(?a:[\w.+-]+)"


def check_flags(flags: Flags, where: str) -> None:
    """Refuse flags that break the build, the gates or the cache; a UsageError of one line."""
    for field, words in flags.words().items():
        place = f"{where}.{field}"
        if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
            raise UsageError(
                f'{place}: expected a tuple of texts, found {words!r}; write e.g. ("-O3",)'
            )
        for word, following in itertools.zip_longest(words, words[1:]):
            if not word or not word.isprintable():
                raise UsageError(
                    f"{place}: expected a flag in one line, found {word!r}; take it out"
                )
            if field == "libraries":
                _check_library(word, place)
            elif field == "library_dirs":
                _check_library_dir(word, place)
            else:
                _check_word(word, place)
                if re.fullmatch(_NEXT_WORD, word):
                    _check_pair(word, following, place)


def _check_pair(word: str, following: str | None, place: str) -> None:
    """A flag and the next word, which is its argument."""
    if following is None:
        raise UsageError(
            f"{place}: expected a flag with its argument, found {word!r}; write both in one word"
        )
    _check_word(word + ("" if len(word) == len("-D") else "=") + following, place)


def _check_word(word: str, place: str) -> None:
    for piece in (word, *_pieces(word)):
        for pattern, why, fix in _REFUSALS:
            if re.fullmatch(pattern, piece):
                raise UsageError(
                    f"{place}: expected a flag that keeps the gates, found {word!r}: {why}; {fix}"
                )


def _pieces(word: str) -> Iterator[str]:
    """The flags in a word that passes them on, e.g. -Wl,-z,now."""
    if found := re.fullmatch(_NESTED, word):
        yield found[1]
        yield from re.split(r"[,\s]", found[1])


def _check_library(name: str, place: str) -> None:
    if not re.fullmatch(_NAME, name) or name.startswith("-"):
        raise UsageError(
            f'{place}: expected the name of a library, found {name!r}; write "aio" for libaio.so'
        )
    _check_word(f"-l{name}", place)


def _check_library_dir(folder: str, place: str) -> None:
    if folder.startswith(("/", "-")) or ".." in folder.split("/"):
        raise UsageError(
            f"{place}: expected a folder below the extension's sources, found {folder!r}; "
            "put the library there"
        )
