"""Enough file descriptors for the connections that the configuration allows."""

import logging
import resource

from gateway.config import Config
from gateway.http.connection import TURNED_AWAY

SPARE = 256
"""For operators, temporary files of large bodies, logs, the event loop and what libraries open."""

_log = logging.getLogger(__name__)


def wanted_descriptors(config: Config) -> int:
    """The most that this process may have open at once."""
    return config.client.max_connections * _listeners(config) + _others(config)


def affordable(config: Config) -> int:
    """How many clients each listener may take so that they never use up what everything else needs, operators above all.

    `client.max_connections`, or what the system's limit leaves of it: half of that limit at least.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return config.client.max_connections
    return min(config.client.max_connections, max(soft - _others(config), soft // 2) // _listeners(config))


def _others(config: Config) -> int:
    upstreams = sum(upstream.max_connections * len(upstream.targets) for upstream in config.upstreams.values())
    return TURNED_AWAY * _listeners(config) + upstreams + config.postgres.pool_size + SPARE


def _listeners(config: Config) -> int:
    return 1 + (config.webhook_listen is not None) + (config.progress is not None)


def raise_limit(config: Config) -> None:
    """Raise the soft limit as far as it is needed and the hard one allows; say so if that is not far enough."""
    wanted = wanted_descriptors(config)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _log.warning(
            "At most %d file descriptors are allowed, and %d may be needed: raise ulimit -Hn or lower client.max_connections. "
            "Until then %d client connections are taken",
            soft,
            wanted,
            affordable(config),
        )
