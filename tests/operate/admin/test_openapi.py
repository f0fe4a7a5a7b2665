"""The OpenAPI document: it names what there is, and what it says is true of the running listener."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.result import Ok

from gateway.config import TcpListener
from gateway.operate.admin import make_admin, start_admin
from gateway.operate.admin.openapi import document
from gateway.store.postgres import PostgresStore
from tests.operate.admin.house import House, silent_ports
from tests.support.services import Services

TOKEN = "s3cret"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)]
EXAMPLES = 25
Operation: TypeAlias = APIOperation[Any, Any, Any, Any]


@contextmanager
def running(dsn: str) -> Iterator[tuple[str, list[str]]]:
    """A listener with a token, on a loop and a thread of its own, over records in all states: its address and their ids."""
    ready, stop = threading.Event(), asyncio.Event()
    told: list[tuple[str, list[str]]] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        store = PostgresStore(dsn)
        house = House(dsn, store)
        ids = [
            await make(f"{make.__name__} {number}") for number in range(20) for make in (house.completed, house.unknown, house.retryable)
        ]
        ids += [await house.unknown(f"dead {number}", "create-refund") for number in range(20)]
        await house.age()
        ids += [await house.unknown("early")]
        runner = await start_admin(TcpListener("127.0.0.1", 0), make_admin(silent_ports(house.operator), TOKEN))
        host, port = runner.addresses[0][:2]
        told.append((f"http://{host}:{port}", ids))
        ready.set()
        await stop.wait()
        await runner.cleanup()
        await store.close()

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    try:
        yield told[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(60)


def test_the_document_names_what_there_is() -> None:
    """Every path and method of the listener, and no other, but the page at `/` and what browsers ask for."""
    served = {
        (route.method, route.resource.canonical)
        for route in make_admin(silent_ports(None)).router.routes()
        if route.resource is not None and route.method != "HEAD" and not route.resource.canonical.startswith("/console")
    }
    described = {(operation.method.upper(), operation.path) for operation in OPERATIONS}
    assert described == served - {("GET", "/")}


def test_the_document_has_the_refusals_of_the_guard() -> None:
    """Everywhere in the API: 421 to a foreign Host, 403 to a page of another origin and to a role that is too low."""
    for operation in OPERATIONS:
        answers = operation.definition.raw["responses"].keys()
        api = operation.path.startswith("/admin/v1/")
        assert (operation.label, "421" in answers) == (operation.label, api)
        assert (operation.label, "403" in answers) == (operation.label, api)


def test_the_document_is_openapi() -> None:
    """It meets OpenAPI's own schema, and each operation has a name of its own."""
    SCHEMA.validate()
    names = [operation.definition.raw["operationId"] for operation in OPERATIONS]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def listener(services: Services) -> Iterator[tuple[str, list[str]]]:
    server = services.postgres()
    dsn = services.migrated_database(server)
    with running(dsn) as told:
        yield told
    services.drop_database(server, dsn)


def run_against(listener: tuple[str, list[str]], operation: Operation, mode: GenerationMode) -> None:
    """Requests that the document allows, or forbids, each with the token and half of them to a record that there is."""
    address, ids = listener

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=CHECKS)
    @given(operation.as_strategy(generation_mode=mode), st.sampled_from([None, *ids]))
    def check(case: Case[Any], name: str | None) -> None:
        if mode is GenerationMode.POSITIVE:
            beyond_schemas(case)
            if name is not None and case.path_parameters:
                case.path_parameters["id"] = name
        case.call_and_validate(base_url=address, headers=AUTHORIZED)

    check()


def beyond_schemas(case: Case[Any]) -> None:
    """Take out what a schema cannot say: which cursors there are, and that a body is shown for a reason alone."""
    case.query.pop("cursor", None)
    if "reason" not in case.query:
        case.query.pop("body", None)


CHECKS = list(HealthCheck)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_what_the_document_allows_is_answered_as_it_says(listener: tuple[str, list[str]], operation: Operation) -> None:
    """Statuses, media types, headers and schemas of the answers are those of the document, and nothing allowed is refused."""
    run_against(listener, operation, GenerationMode.POSITIVE)


@pytest.mark.parametrize(
    "operation", [found for found in OPERATIONS if found.path.startswith("/admin/v1/")], ids=lambda operation: operation.label
)
def test_what_the_document_forbids_is_refused(listener: tuple[str, list[str]], operation: Operation) -> None:
    """With a 4xx that the document has, never with a 5xx."""
    run_against(listener, operation, GenerationMode.NEGATIVE)
