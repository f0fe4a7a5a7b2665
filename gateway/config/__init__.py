"""Configuration: a YAML file and the environment become one frozen `Config`, or all of their mistakes at once."""

from gateway.config.addresses import Listener, TcpListener, UnixListener
from gateway.config.load import load, load_admin
from gateway.config.mistakes import ConfigErrors, Mistake, Place
from gateway.config.model import ClientSettings, Config, DrainSettings, MemorySettings
from gateway.config.redact import redact
from gateway.config.schema import json_schema
from gateway.config.settings.admin import Admin, OidcSettings, SessionSettings, User
from gateway.config.settings.stores import PostgresSettings, RedisSettings
from gateway.config.settings.tls import TlsClient, TlsServer
from gateway.config.settings.upstreams import UpstreamConfig, UpstreamHealth, UpstreamTimeouts
from gateway.config.table import dialect_table, route_table, settings_table

__all__ = [
    "Admin",
    "ClientSettings",
    "Config",
    "ConfigErrors",
    "DrainSettings",
    "Listener",
    "MemorySettings",
    "Mistake",
    "OidcSettings",
    "Place",
    "PostgresSettings",
    "RedisSettings",
    "SessionSettings",
    "TcpListener",
    "TlsClient",
    "TlsServer",
    "UnixListener",
    "UpstreamConfig",
    "UpstreamHealth",
    "UpstreamTimeouts",
    "User",
    "dialect_table",
    "json_schema",
    "load",
    "load_admin",
    "redact",
    "route_table",
    "settings_table",
]
