"""Scripts that complete a command line in bash, zsh and fish, made of its parser.

A script holds all words, so that a shell answers at once and needs no Python: commands, options
and their choices. What an option or a command takes else is the name of a file.
"""

import argparse
import dataclasses
import shlex
from collections.abc import Iterator, Sequence

SHELLS = ("bash", "zsh", "fish")
_BASH = "-o default -F __{name}_complete"


@dataclasses.dataclass(frozen=True)
class _Word:
    """A word that may follow a command.

    Attributes:
        text: the word, e.g. "--color" or "list".
        help: what it does.
        values: the choices of what follows it; None if nothing does, none for the name of a file.
    """

    text: str
    help: str = ""
    values: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class _Level:
    """A command, and the words that may follow it.

    Attributes:
        path: its words, without the program's name: "" or "cache list".
        commands: the commands of a group, or the choices of an argument.
        options: its options.
    """

    path: str
    commands: tuple[_Word, ...]
    options: tuple[_Word, ...]


def completions_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell of `SHELLS`."""
    name, levels = parser.prog, list(_levels(parser, ""))
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](name, levels)
    return "".join(f"{line}\n" for line in lines)


def _levels(parser: argparse.ArgumentParser, path: str) -> Iterator[_Level]:
    commands: list[_Word] = []
    options: list[_Word] = []
    below: list[tuple[argparse.ArgumentParser, str]] = []
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            for word, one in action.choices.items():
                commands.append(_Word(word, one.description))
                below.append((one, f"{path} {word}".strip()))
        elif not action.option_strings:
            commands += map(_Word, choices)
        elif action.help is not argparse.SUPPRESS:
            told = (action.help or "") % {**vars(action), "prog": parser.prog}
            values = None if action.nargs == 0 else choices
            options += [_Word(text, told, values) for text in action.option_strings]
    yield _Level(path, tuple(commands), tuple(options))
    for one, name in below:
        yield from _levels(one, name)


def _bash(name: str, levels: Sequence[_Level]) -> Iterator[str]:
    """A function that finds the command among the words, and what may follow it."""
    paths = [f'"{level.path}"' for level in levels if level.path]
    yield f"__{name}_complete() {{"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" path="" words="" at next'
    yield "    for ((at = 1; at < COMP_CWORD; at++)); do"
    yield '        next="${path:+$path }${COMP_WORDS[at]}"'
    yield f'        case "$next" in {"|".join(paths)}) path="$next" ;; esac'
    yield "    done"
    yield '    case "$path ${COMP_WORDS[COMP_CWORD-1]}" in'
    for level in levels:
        for option in level.options:
            if option.values is not None:
                yield f'        "{level.path} {option.text}") words="{" ".join(option.values)}" ;;'
    yield '        *) case "$path $current" in'
    for level in levels:
        options, commands = (
            " ".join(word.text for word in words) for words in (level.options, level.commands)
        )
        yield f'            "{level.path} -"*) words="{options}" ;;'
        yield f'            "{level.path} "*) words="{commands}" ;;'
    yield "        esac ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield f"complete {_BASH.format(name=name)} {name}"


def _zsh(name: str, levels: Sequence[_Level]) -> Iterator[str]:
    """That of bash, for which zsh has a layer; as a file in fpath it is run at the first TAB."""
    yield f"#compdef {name}"
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from _bash(name, levels)
    yield f'[[ "$funcstack[1]" == _{name} ]] && _bash_complete {_BASH.format(name=name)}'


def _fish(name: str, levels: Sequence[_Level]) -> Iterator[str]:
    """A function that says which command is typed, and a line for each word that may follow it."""
    paths = shlex.join(level.path for level in levels if level.path)
    yield f"function __{name}_at"
    yield "    set -l path"
    yield "    for word in (commandline -opc)[2..]"
    yield '        set -l next (string trim -- "$path $word")'
    yield f"        contains -- $next {paths}; and set path $next"
    yield "    end"
    yield '    test "$path" = "$argv"'
    yield "end"
    for level in levels:
        start = f"complete -c {name} -n {shlex.quote(f'__{name}_at {level.path}'.strip())}"
        for word in level.commands:
            yield f"{start} -f -a {shlex.quote(word.text)} -d {_quoted(word.help)}"
        for word in level.options:
            kind = "-l" if word.text.startswith("--") else "-s"
            follows = "" if word.values is None else " -r"
            if word.values:
                follows = f" -x -a {_quoted(' '.join(word.values))}"
            yield f"{start} {kind} {word.text.lstrip('-')} -d {_quoted(word.help)}{follows}"


def _quoted(text: str) -> str:
    """A word of fish: in single quotes a backslash and a quote are escaped alone."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
