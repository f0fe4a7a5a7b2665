"""The sending of one request over one connection: at once, at the end of a turn of the event loop, or piece by piece, each piece in the
step in which the fence allows it; and the limits of the wait for its answer.
"""

from abc import abstractmethod
from collections.abc import Callable

from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, Receiver, UpstreamRequest
from gateway.runtime.cork import Cork
from gateway.upstream.connection import Connection, Occupant
from gateway.upstream.settings import UpstreamSettings

WATCH = 0.1
"""Seconds between two looks at the fence while bytes wait to be sent: little against the margin by which it says no too
early.
"""


class Sending(Occupant):
    """The request's part of an `Exchange`. `started` and `receiver` as there.

    `_connection` is None once the exchange is over; `_failure` is why, if it has failed. `_headed`: the response has begun.
    """

    __slots__ = (
        "_backlog",
        "_connection",
        "_deadline",
        "_expiry",
        "_failure",
        "_fence",
        "_headed",
        "_held",
        "_loop",
        "_receiver",
        "_sent",
        "_settings",
        "_streamed",
        "_watched",
    )

    def __init__(
        self,
        connection: Connection,
        settings: UpstreamSettings,
        request: UpstreamRequest,
        fence: Callable[[], bool],
        started: float,
        receiver: Receiver | None,
    ) -> None:
        self._loop = connection.loop
        self._connection: Connection | None = connection
        self._settings = settings
        self._fence = fence
        self._receiver = receiver
        self._deadline = None if settings.total is None else started + settings.total
        self._expiry = DoubtReason.TOTAL_TIMEOUT
        self._failure: BaseException | None = None
        self._headed = False
        self._streamed = not isinstance(request.body, bytes)
        self._held: bytes | None = None
        self._sent = False
        self._watched = False
        self._backlog = 0

    def begin(self, data: bytes) -> bool:
        """Write the request's first bytes in the step in which the fence allows it; else the exchange is over, the
        connection untouched.
        """
        connection = self._connection
        assert connection is not None
        if not self._fence():
            self._connection = None
            return False
        if self._streamed:
            connection.begin(self, data)
            return True
        self._sent = True
        self._arm(connection, self._settings.first_byte, DoubtReason.FIRST_BYTE_TIMEOUT)
        connection.begin(self, data)
        if connection.unsent:
            connection.guarded(self, self.limit_silence)
        return True

    def hold(self, cork: Cork, data: bytes) -> None:
        """`begin` at the end of this turn of the event loop. Only then the fence is asked, and the connection looked at:
        what has become of either, the receiver is told.
        """
        self._held = data
        cork.hold(self, len(data))

    @property
    def held(self) -> bool:
        """See `gateway.ports.Exchanging`."""
        return self._held is not None

    def turn_ended(self) -> None:
        """See `gateway.runtime.cork.Corked`."""
        if self._connection is not None:  # else it was closed meanwhile
            self._connection.guarded(self, self._begin_late)

    def send_on(self, data: bytes) -> Connection | None:
        """Write more of the request, in the step in which the fence allows it, and give the connection. None: there is
        nothing to be sent any more, since the response has begun or the exchange is over. If the fence says no, it ends
        here, in doubt.
        """
        connection = self.open_connection()
        if connection is None or not self._may_send():
            return None
        connection.write(data)
        return connection

    def sent(self) -> None:
        """The request is written to its last byte: the wait for the response begins, or for the upstream to take what
        it has not yet.
        """
        self._sent = True
        self.limit_silence()

    def limit_silence(self) -> None:
        """From now on `first_byte` counts: it is the upstream's turn to act, be it by taking some of what waits to be
        sent.
        """
        connection = self._connection
        if connection is None:
            return
        if connection.unsent:
            self._backlog = connection.backlog()
            if not self._watched:
                self._watch_sending_soon(connection)
        else:
            self._backlog = 0
        self._arm(connection, self._settings.first_byte, DoubtReason.FIRST_BYTE_TIMEOUT)

    def forget_deadline(self) -> None:
        """From now on nothing but silence ends the exchange."""
        self._deadline = None

    def lift_limit(self) -> None:
        """From now on only `total` counts: the upstream is not what is waited for."""
        if self._connection is not None:
            self._expiry = DoubtReason.TOTAL_TIMEOUT
            self._connection.alarm.set(self._deadline)

    def open_connection(self) -> Connection | None:
        """The connection, as long as the response has not begun and nothing failed: then the body may still be sent."""
        return None if self._headed else self._connection

    def drained(self) -> None:
        if self._sent and not self._headed:
            self.limit_silence()

    @abstractmethod
    def fail(self, error: BaseException, *, unsent: bool = True) -> None:
        """End the exchange with `error` for the caller that waits, and cut the connection. No effect on an exchange
        that is over.

        Without `unsent` the system, too, drops what it has not sent yet.
        """

    @abstractmethod
    def _seen_status(self) -> int | None:
        """The status of the response, if its head has come."""

    @abstractmethod
    def _wake(self) -> None:
        """Tell the receiver, or the caller that waits."""

    def _begin_late(self) -> None:
        """Nothing is written to a connection that has gone since, nor under a lease that has lapsed since."""
        connection, data, self._held = self._connection, self._held, None
        assert connection is not None, "nobody has closed it"
        assert data is not None, "it is held back"
        if not connection.usable():
            if self._receiver is not None:
                self._receiver.not_begun()
            self._receiver = self._connection = None
            connection.cut()
        elif not self.begin(data):
            self._failure = NotSent(NotSentReason.LEASE_LAPSED)
            self._give_back(connection)
            self._wake()

    def _give_back(self, connection: Connection) -> None:
        """To the pool, untouched."""
        self._connection = self._held = None
        connection.put_back()

    def _may_send(self) -> bool:
        if self._fence():
            return True
        self.fail(InDoubt(DoubtReason.LEASE_LOST, self._seen_status()), unsent=False)
        return False

    def _watch_sending_soon(self, connection: Connection) -> None:
        self._watched = True
        self._loop.call_later(WATCH, connection.guarded, self, self._watch_sending)

    def _watch_sending(self) -> None:
        """While bytes wait for the kernel the event loop sends them by itself: ask the fence for these, too, until they
        have gone.
        """
        self._watched = False
        connection = self._connection
        if connection is not None and connection.unsent and self._may_send():
            self._watch_sending_soon(connection)

    def _arm(self, connection: Connection, timeout: float, reason: DoubtReason) -> None:
        due, deadline = self._loop.time() + timeout, self._deadline
        if deadline is not None and deadline <= due:
            due, reason = deadline, DoubtReason.TOTAL_TIMEOUT
        self._expiry = reason
        connection.alarm.set(due)
