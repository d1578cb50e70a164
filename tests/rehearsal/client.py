"""How stand-ins of programs and actions, which run as the job's user, talk to the forge."""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NoReturn

PAUSES = (0.1, 0.2)


class ForgeError(Exception):
    """The forge refuses, or cannot be reached."""


def ask(
    method: str, path: str, body: bytes | None = None, retry: bool = False, **query: object
) -> bytes:
    """One request with the token of the job; with `retry` again after a fault of the server."""
    given = urllib.parse.urlencode({k: str(v) for k, v in query.items()})
    address = f"{os.environ['REHEARSAL_FORGE']}{urllib.parse.quote(path)}?{given}"
    token = os.environ.get("GH_TOKEN") or os.environ.get("REHEARSAL_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"}
    for pause in (*(PAUSES if retry else ()), None):
        request = urllib.request.Request(address, body, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            text = f"HTTP {error.code}: {json.loads(error.read() or b'{}').get('message', '')}"
            if error.code < 500 or pause is None:
                raise ForgeError(text) from None
        except (OSError, urllib.error.URLError) as error:
            if pause is None:
                raise ForgeError(f"error connecting to the forge: {error}") from None
        time.sleep(pause)
    raise AssertionError


def ask_json(method: str, path: str, body: Any = None, retry: bool = False, **query: object) -> Any:
    """A request and an answer in JSON."""
    data = None if body is None else json.dumps(body).encode()
    return json.loads(ask(method, path, data, retry, **query))


def fail(text: str) -> NoReturn:
    """End with an error."""
    print(f"Error: {text}", file=sys.stderr)
    sys.exit(1)
