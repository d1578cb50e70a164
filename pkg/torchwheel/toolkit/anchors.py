"""Reads the links of an HTML page, such as a project's page in an index (PEP 503)."""

import html.parser


def anchors_of(text: str) -> list[dict[str, str]]:
    """The attributes of each link of a page that has an address, in its order.

    Raises:
        ValueError: Python's parser does not take the page.
    """
    parser = _Anchors()
    try:
        parser.feed(text)
    # It raises one for a declaration such as "<![" with no name after it.
    except AssertionError as error:
        raise ValueError(str(error)) from None
    return parser.found


class _Anchors(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link."""
        values = {name: value or "" for name, value in attrs}
        if tag == "a" and values.get("href"):
            self.found.append(values)
