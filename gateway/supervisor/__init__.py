"""Several workers as one gateway: `serve --workers N`.

One supervisor starts N processes of the same command and keeps them alive. It serves no client itself: the workers share the proxy
port with SO_REUSEPORT. It owns the admin listener, where all workers look like one.

What a worker finds in its environment, and what is expected of it:

* `GATEWAY_WORKER`: its index, from 0. Set, it makes `serve` run as a worker: SO_REUSEPORT, and not the admin listener of the configuration.
* `GATEWAY_WORKER_SOCKET`: the path of a Unix socket on which it serves the admin application instead, without a token (the folder
  is private). It counts as started once `/readyz` there has answered 200 for the first time.
* `GATEWAY_WORKER_PARENT_FD`: a pipe that the supervisor never writes to. End of file means that the supervisor was killed; the worker then
  drains as for SIGTERM.
* `PROMETHEUS_MULTIPROC_DIR`: where metrics are shared. Set before the process starts, as prometheus_client wants it.
* SIGTERM drains, SIGHUP reloads. Exit status 69 or 78 at the start means that starting again is of no use.
"""

from gateway.supervisor.fleet import Fleet
from gateway.supervisor.main import supervise
from gateway.supervisor.slot import Backoff

__all__ = ["Backoff", "Fleet", "supervise"]
