"""The helper for upstreams in Python, by itself."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError

import pytest

from gateway import participant
from gateway.participant import Attempt, Superseded, is_superseded

TOLD = {"Idempotency-Token": "AQAB", "idempotency-attempt": "2"}
URL = "http://127.0.0.1:{}"


class Gateway(HTTPServer):
    """Answers with `status`, and keeps what it was told."""

    status = 204
    told: tuple[str, str | None, Any] | None = None


class Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.told = (self.path, self.headers["Authorization"], body)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    server = Gateway(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_it_needs_nothing_else() -> None:
    """A hundred lines at most, and no module but the standard library's."""
    text = Path(participant.__file__).read_text("utf-8")
    assert len(text.splitlines()) <= 100
    code = "import sys; import participant; print(*[name for name in sys.modules if name.split('.')[0] not in sys.stdlib_module_names])"
    folder = Path(participant.__file__).parent
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(folder)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) <= {"participant", "__main__"}


def test_what_a_request_tells() -> None:
    """Whatever the case of its fields; a request without a token belongs to no attempt."""
    assert Attempt.of({}) is None
    first = Attempt.of(TOLD)
    assert first == Attempt("AQAB", 2)
    more = {"Idempotency-Recovery-Point": "charged", "Idempotency-Recovery-Data": '{"charge":"ch_\\u00e9"}'}
    assert Attempt.of({**TOLD, **more}) == Attempt("AQAB", 2, "charged", {"charge": "ch_é"})
    assert "AQAB" not in repr(first)


def test_telling_a_point(gateway: Gateway) -> None:
    attempt = Attempt("AQAB", 1)
    attempt.advance(URL.format(gateway.server_port), "charged", {"charge": "ch_1"})
    assert gateway.told == ("/v1/progress", "Bearer AQAB", {"recovery_point": "charged", "data": {"charge": "ch_1"}})
    attempt.advance(URL.format(gateway.server_port), "mailed")
    assert gateway.told is not None
    assert gateway.told[2] == {"recovery_point": "mailed"}


def test_superseded_and_not_known(gateway: Gateway) -> None:
    """409 ends the attempt; after anything else the upstream tells it again."""
    attempt = Attempt("AQAB", 1)
    gateway.status = 409
    with pytest.raises(Superseded):
        attempt.advance(URL.format(gateway.server_port), "charged")
    gateway.status = 503
    with pytest.raises(HTTPError):
        attempt.advance(URL.format(gateway.server_port), "charged")
    with pytest.raises(OSError):  # noqa: PT011 - nobody is there; the system words it
        attempt.advance(URL.format(1), "charged")


def test_statements() -> None:
    """For drivers with %s."""
    attempt = Attempt("AQAB", 1)
    assert attempt.fenced() == ("SELECT gateway_fence(%s)", ("AQAB",))
    assert attempt.advanced("x", {"a": 1})[1] == ("AQAB", "x", '{"a": 1}')
    assert attempt.advanced("x")[1] == ("AQAB", "x", None)
    assert attempt.completed(201, [("A", "b")], b"c")[1] == ("AQAB", 201, '[["A", "b"]]', b"c")


def test_what_drivers_say() -> None:
    class Psycopg(Exception):
        sqlstate = "IG001"

    class Older(Exception):
        pgcode = "IG001"

    assert is_superseded(Psycopg())
    assert is_superseded(Older())
    assert not is_superseded(ValueError())
