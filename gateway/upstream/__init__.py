"""The upstream side: a small HTTP/1.1 client that owns every byte it writes and knows whether anything was sent."""

from gateway.upstream.balancer import Balancer
from gateway.upstream.client import HttpUpstream
from gateway.upstream.exchange import Exchange
from gateway.upstream.health import Health
from gateway.upstream.settings import UpstreamSettings

__all__ = ["Balancer", "Exchange", "Health", "HttpUpstream", "UpstreamSettings"]
