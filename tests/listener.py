"""A progress that remembers what it was told."""

from torchwheel_runtime.console import Quiet


class Listener(Quiet):
    """Shows nothing; `said` has the lines that a user would see."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)
