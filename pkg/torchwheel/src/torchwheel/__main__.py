"""`python -m torchwheel`."""

import sys

if not getattr(sys.flags, "safe_path", False):
    # The working folder, which `python -m` puts first. A file there would be imported in place of a
    # module.
    del sys.path[0]

from torchwheel.cli import main

sys.exit(main())
