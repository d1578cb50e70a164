"""The doctor explains what an extension runs on, why, and how to fix it. Its options."""

from torchwheel_runtime.arguments import option, positive_number

SECONDS = 35
"""Time limit of an import: with it the doctor ends within a minute, whatever the package does."""
HELP = "Explain what packages here run on, and what fixes them."
OPTIONS = (
    option(
        "package", nargs="*", help="distribution or module (default: those that torchwheel made)"
    ),
    option("--json", action="store_true", help="print it as JSON"),
    option(
        "--seconds",
        type=positive_number,
        default=SECONDS,
        help=f"time limit of an import (default: {SECONDS})",
    ),
)
