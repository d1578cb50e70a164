"""Errors are told apart by their types, whatever their messages say."""

import errno
import os

import pytest

from torchwheel.errors import (
    DiskFullError,
    MissingModuleError,
    TorchwheelError,
    UsageError,
    program_error,
)
from torchwheel.files import explain_full_disk

WORDS = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_by_the_cause_of_an_error_not_by_its_message(tmp_path, number):
    def write():
        try:
            raise OSError(number, "anything at all")
        except OSError as error:
            raise TorchwheelError("x.o: cannot be written") from error

    with pytest.raises(DiskFullError, match="no space left"), explain_full_disk(tmp_path):
        write()


@pytest.mark.parametrize("error", [TorchwheelError(f"{WORDS}.txt: bad"), ValueError(WORDS)])
def test_an_error_that_only_has_the_words_in_it_passes_through(tmp_path, error):
    with pytest.raises(type(error)) as caught, explain_full_disk(tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (f"ld: x.so: {WORDS}", DiskFullError),
        ("ModuleNotFoundError: No module named 'wheel'", MissingModuleError),
        ("error: expected ';'", TorchwheelError),
    ],
)
def test_a_program_that_failed(reason, kind):
    error = program_error(reason)
    assert (type(error), str(error)) == (kind, reason)
    assert not isinstance(error, UsageError)
