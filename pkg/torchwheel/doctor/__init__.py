"""The doctor explains what an extension runs on, why, and how to fix it. Its options."""

from torchwheel.arguments import option, positive_number

HELP = "Explain what packages here run on, and what fixes them."
OPTIONS = (
    option(
        "package", nargs="*", help="distribution or module (default: those that torchwheel made)"
    ),
    option("--json", action="store_true", help="print it as JSON"),
    option(
        "--seconds",
        type=positive_number,
        default=120,
        help="time limit of an import (default: 120)",
    ),
)
