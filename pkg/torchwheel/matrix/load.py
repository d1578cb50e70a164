"""`matrix.yaml` to a checked Matrix."""

from pathlib import Path

from torchwheel.matrix.companions import companions_there
from torchwheel.matrix.document import read
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.problem import MatrixError, Problem
from torchwheel.matrix.rules import findings
from torchwheel.matrix.shape import shaped


def load(path: Path) -> Matrix:
    """Read and check a matrix.

    Raises:
        MatrixError: one line for each problem: file, line, place, what came, what was expected.
    """
    where = str(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MatrixError(
            f"{where}: no such file; run where the matrix is, or name it with --matrix"
        ) from None
    except OSError as error:
        raise MatrixError(f"{where}: cannot be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise MatrixError.of(
            where,
            [Problem(line, (), f"not UTF-8: byte 0x{content[error.start]:02x}; save it as UTF-8")],
        ) from None
    return parse(text, where, path.parent)


def parse(text: str, where: str, root: Path | None = None) -> Matrix:
    """Check a matrix given as text.

    Args:
        text: the YAML.
        where: the file's name in messages.
        root: the folder whose parts the matrix names; what is there is left open if none is given.
    """
    document = read(text, where)
    matrix = shaped(document)
    if isinstance(matrix, Matrix):
        found = findings(matrix) + (list(companions_there(matrix, root)) if root else [])
        problems = [Problem(document.line(path), path, what) for path, what in found]
        if not problems:
            return matrix
    else:
        problems = matrix
    raise MatrixError.of(where, problems)
