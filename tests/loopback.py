"""A web server of a test's own, in a thread of the test."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# How soon the thread sees that it shall end; http.server's own half a second adds up.
_POLL_S = 0.01


@contextlib.contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port of loopback; yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[_POLL_S], daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def answering(answer: Callable[[str], tuple[int, Mapping[str, str], bytes]]) -> Iterator[str]:
    """Serve what `answer` gives for a path: the status, headers and body; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - named by the base class

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as address:
        yield address
