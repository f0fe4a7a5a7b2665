"""The edges of the program as Protocols, by subject. Their docstrings are the specification that every implementation
meets.

Imports point inwards: these modules know `gateway.core` and nothing else. `reconciliation` holds the ports of the
reconciler, of webhooks and of operators.
"""

from gateway.core.failures import DoubtReason, NotSentReason
from gateway.ports.bodies import Body, Memory, Spool
from gateway.ports.observer import FinishedAttempt, FinishedRequest, Observer, StoreObserver
from gateway.ports.store import (
    OBSERVED_DOUBT_KEPT,
    TOMBSTONE_AFTER,
    Answered,
    Counts,
    Doubted,
    Maintenance,
    Recollection,
    Remembered,
    Retention,
    RouteDoubt,
    RoutePending,
    Settled,
    Store,
    StoreUnavailable,
    Swept,
    Transition,
)
from gateway.ports.system import Clock, Randomness
from gateway.ports.upstream import (
    Exchanging,
    InDoubt,
    NotSent,
    Receiver,
    RelayCut,
    Tunnel,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
    WebhookExchange,
)

__all__ = [
    "OBSERVED_DOUBT_KEPT",
    "TOMBSTONE_AFTER",
    "Answered",
    "Body",
    "Clock",
    "Counts",
    "DoubtReason",
    "Doubted",
    "Exchanging",
    "FinishedAttempt",
    "FinishedRequest",
    "InDoubt",
    "Maintenance",
    "Memory",
    "NotSent",
    "NotSentReason",
    "Observer",
    "Randomness",
    "Receiver",
    "Recollection",
    "RelayCut",
    "Remembered",
    "Retention",
    "RouteDoubt",
    "RoutePending",
    "Settled",
    "Spool",
    "Store",
    "StoreObserver",
    "StoreUnavailable",
    "Swept",
    "Transition",
    "Tunnel",
    "Upstream",
    "UpstreamRequest",
    "UpstreamResponse",
    "WebhookExchange",
]
