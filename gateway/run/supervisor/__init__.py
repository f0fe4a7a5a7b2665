"""Several workers as one gateway: `serve --workers N`.

One supervisor starts N processes of the same command and keeps them alive. It serves no client itself: the workers share the proxy
port with SO_REUSEPORT. It owns the admin listener, where all workers look like one.

What a worker finds in its environment, and what is expected of it:

* `GATEWAY_WORKER`: its index, from 0.
* `GATEWAY_WORKER_CONFIG_FD`: a file in memory with the configuration that was accepted last (`gateway.run.server.handover`). A worker
  reads no other: one that is started later serves exactly what its siblings serve, whatever became of the files meanwhile.
* `GATEWAY_WORKER_SOCKET`: the path of a Unix socket on which it serves the admin application instead, without a token (the folder
  is private), and takes the orders of `gateway.run.server.worker`. It counts as started once `/readyz` there has answered 200.
* `GATEWAY_WORKER_PARENT_FD`: a pipe that the supervisor never writes to. End of file means that the supervisor was killed; the worker then
  drains as for SIGTERM.
* SIGTERM drains, SIGHUP means nothing to it. Exit status 69 or 78 at the start means that starting again is of no use.

A reload is the supervisor's: it reads the files once, has every worker prepare, and if all can, has every worker adopt. One that fails
to is replaced. The folder that is written to holds sockets alone, so that a full disk stops nothing.
"""

from gateway.run.supervisor.fleet import Fleet
from gateway.run.supervisor.main import supervise
from gateway.run.supervisor.slot import Backoff

__all__ = ["Backoff", "Fleet", "supervise"]
