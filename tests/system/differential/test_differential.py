"""A bounded run against the servers that are installed with the tests; `scripts/differential` is the long one."""

from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from tests.system.differential.apps import CHANGE, PAY, REFUND
from tests.system.differential.judge import passed_on
from tests.system.differential.running import commands, ran, serving
from tests.system.differential.spellings import Request, requests

SERVERS = ("aiohttp", "flask+gunicorn", "bottle+waitress", "starlette+uvicorn")
PLAIN = {Request(b"POST", b"/v1/pay"): PAY, Request(b"POST", b"/v1/7/refund"): REFUND, Request(b"PATCH", b"/v1/orders/7"): CHANGE}
FOUND = (
    Request(b"POST", b"/x/v1/pay", ((b"SCRIPT_NAME", b"/x"),)),
    Request(b"POST", b"/v1%c0%af/pay"),
    Request(b"POST", b"/v1/p%61y"),
    Request(b"POST", b"//v1/pay"),
)
"""What servers were seen to route to a guarded operation."""
COUNT = 400


def test_no_server_runs_a_guarded_operation_that_was_passed_on(tmp_path: Path) -> None:
    """Whatever the gateway forwards unguarded runs nothing that is guarded, at any of them; plain requests run at each."""
    known = commands()
    with ExitStack() as stack:
        assert set(SERVERS) <= known.keys()  # they come with the tests: one that is missing is no reason to compare with fewer
        ports = {name: stack.enter_context(serving(known[name], tmp_path)) for name in SERVERS}
        for name, port in ports.items():
            assert {request: ran(port, request) for request in PLAIN} == PLAIN, name
        for request in [*FOUND, *islice(requests(1), COUNT)]:
            forwarded = passed_on(request)
            if forwarded is not None:
                assert {name: ran(port, forwarded) for name, port in ports.items()} == dict.fromkeys(ports), request
