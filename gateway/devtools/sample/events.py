"""Events of the sample: it reports executions to a webhook, signs them as Stripe does, and sends them again until the
receiver takes them.
"""

import asyncio
import hashlib
import hmac
import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

ATTEMPTS = 12
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
PATIENCE = 10.0
KEPT = 1000


@dataclass(frozen=True, slots=True)
class Hook:
    """Where events go, and the secret that signs them."""

    url: str
    secret: bytes


@dataclass(slots=True)
class Delivery:
    """One event on its way. `status` is the last answer to it, None while there is none."""

    id: str
    type: str
    attempts: int = 0
    status: int | None = None
    delivered: bool = False


class Events:
    """Sends events to `hook`, each in a task of its own, which `close` ends. Without a hook nothing is sent."""

    def __init__(self, hook: Hook | None) -> None:
        self._hook = hook
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent = 0
        self.deliveries: deque[Delivery] = deque(maxlen=KEPT)

    def send(self, kind: str, data: Mapping[str, object], after: float) -> None:
        """Tell of something, `after` seconds from now."""
        if self._hook is None:
            return
        self._sent += 1
        delivery = Delivery(f"evt_{self._sent:06}_{time.time_ns() // 1000}", kind)
        self.deliveries.append(delivery)
        event = {"id": delivery.id, "object": "event", "type": kind, "created": now(), "data": data}
        task = asyncio.create_task(self._deliver(self._hook, delivery, json.dumps(event).encode(), after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """What is not delivered yet never will be."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._session is not None:
            await self._session.close()

    async def _deliver(self, hook: Hook, delivery: Delivery, body: bytes, after: float) -> None:
        await asyncio.sleep(after)
        pause = FIRST_PAUSE
        while delivery.attempts < ATTEMPTS:
            delivery.attempts += 1
            delivery.status = await self._post(hook, body)
            delivery.delivered = delivery.status is not None and 200 <= delivery.status < 300
            if delivery.delivered:
                return
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _post(self, hook: Hook, body: bytes) -> int | None:
        """The status of one try; None if there was no answer."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE))
        headers = {"Content-Type": "application/json", "Stripe-Signature": sign(hook.secret, body, now())}
        try:
            async with self._session.post(hook.url, data=body, headers=headers, allow_redirects=False) as response:
                return response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None


def sign(secret: bytes, body: bytes, at: int) -> str:
    """Stripe's scheme: `t=<seconds>,v1=<hex>`, HMAC-SHA256 over `<seconds>.<body>`."""
    return f"t={at},v1={hmac.new(secret, b'%d.%b' % (at, body), hashlib.sha256).hexdigest()}"


def now() -> int:
    return int(time.time())  # noqa: TID251 - an event's time is the wall clock's, as is its signature's
