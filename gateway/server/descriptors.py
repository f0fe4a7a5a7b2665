"""Enough file descriptors for the connections that the configuration allows."""

import logging
import resource

from gateway.config import Config

SPARE = 256
"""For temporary files of large bodies, logs, the event loop and what libraries open."""

_log = logging.getLogger(__name__)


def wanted_descriptors(config: Config) -> int:
    """The most that this process may have open at once."""
    upstreams = sum(upstream.max_connections * len(upstream.targets) for upstream in config.upstreams.values())
    return config.client.max_connections + upstreams + config.postgres.pool_size + SPARE


def raise_limit(config: Config) -> None:
    """Raise the soft limit as far as it is needed and the hard one allows; say so if that is not far enough."""
    wanted = wanted_descriptors(config)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _log.warning(
            "At most %d file descriptors are allowed, and %d may be needed: raise ulimit -Hn or lower client.max_connections",
            soft,
            wanted,
        )
