"""What an error of the operating system means, in one line."""

import errno
import os

import pytest

from torchwheel.errors import UsageError
from torchwheel.os_errors import explain


def of(number: int, path: object = "/a/b") -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOENT, "expected a file or folder, found none; check the path"),
        (
            errno.EACCES,
            "expected a file or folder that this user may use, found no permission; change",
        ),
        (errno.EROFS, "expected a place that can be written, found a read-only file system; name"),
        (errno.ENOSPC, "expected space on the disk, found none left; free some and run again"),
        (errno.EDQUOT, "expected space in this user's quota, found none left; free some and run"),
        (errno.EFBIG, "expected room below the limit on the size of a file, found a larger file; "),
        (errno.ENOTDIR, "expected a folder, found a file in the path; remove the file, or name"),
        (
            errno.ELOOP,
            "expected a file or folder, found links that lead in a ring; remove the link",
        ),
        (errno.EXDEV, "Invalid cross-device link"),
    ],
)
def test_an_error_of_the_system(number, says):
    assert explain(of(number)).startswith(f"/a/b: {says}")


def test_where_no_file_is_named():
    assert explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "standard output") == (
        "standard output: expected space on the disk, found none left; free some and run again"
    )


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"a\xff\nb", "a\\udcff\\u000ab: "),
        ("x" * 5000, "x" * 100 + "…" + "x" * 100 + ": "),
        (3, "file handle 3: "),
        ("", '"": '),
    ],
)
def test_a_path_is_on_one_line_and_not_too_long(path, shown):
    assert explain(of(errno.ENOENT, path)).startswith(shown)


def test_words_that_python_adds_are_kept():
    text = "No usable temporary directory found in ['/tmp']"
    assert explain(FileNotFoundError(errno.ENOENT, text), "wheels") == f"wheels: {text}"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (UsageError("a: b"), "a: b"),
        (ValueError("two\nlines"), "here: ValueError: two lines"),
        (RecursionError(), "here: RecursionError"),
        (OSError("no number"), "here: OSError: no number"),
    ],
)
def test_other_errors(error, says):
    assert explain(error, "here") == says


def test_every_text_is_one_line():
    for number in errno.errorcode:
        assert explain(of(number)).isprintable()
