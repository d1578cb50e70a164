"""What is raised when a wheel or a file in it is not what it must be."""

from torchwheel.errors import TorchwheelError


class WheelError(TorchwheelError):
    """A wheel is broken; the text names the file and the fact."""
