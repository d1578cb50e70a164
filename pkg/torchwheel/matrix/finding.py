"""What a rule finds: a place of the matrix and what is wrong there."""

from torchwheel.shown import Path

Finding = tuple[Path, str]
