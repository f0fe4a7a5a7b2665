"""Opens the connections of a store, with the settings that its statements need."""

from gateway.store.hosts import Hosts
from gateway.store.postgres.fitness import Fitness
from gateway.store.postgres.lane import Connection, server_limit
from gateway.store.postgres.queries import QUERIES

PLANNING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""Settings of the planner. Every statement has one good plan, whatever its arguments are: each row of a batch by an index
(tests/store/postgres look at all of them).

Left to itself Postgres plans a batch anew each time, which takes several times as long as the batch: a plan for one row seems cheaper than
the one for any number of rows. And it would plan to read a table as a whole that is empty as yet, and keep to that while the table grows.
See also `lane.PLANS_KEPT`. Nothing is worth compiling, which takes longer than any statement; but what reads a whole table nonetheless, if
only of one row, costs ten thousand million by the estimate of Postgres before 18, and would be compiled.
"""

PLANS = "; ".join(f"SET {name} = {value}" for name, value in PLANNING.items())
"""No startup parameters, as poolers refuse those that they do not know."""


class Connecting:
    """Connections to the primary among `hosts`, if it is fit. The others are `PostgresStore`'s."""

    def __init__(self, hosts: Hosts, fitness: Fitness, *, timeout: float, prepared_statements: bool, application_name: str) -> None:
        self._hosts = hosts
        self._fitness = fitness
        self._timeout = timeout
        self._prepared_statements = prepared_statements
        self._settings = {"application_name": application_name}

    async def connect(self) -> Connection:
        """One more. Raises `Unfit`, and what `Hosts.connect` raises."""
        cache = 100 if self._prepared_statements else 0
        connection = await self._hosts.connect(self._timeout, statement_cache_size=cache, server_settings=self._settings)
        try:
            if self._prepared_statements:
                await connection.execute(f"{PLANS}; {server_limit(self._timeout)}")
            await self._fitness.look_at(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def stuck(self, connection: Connection) -> int:
        """As `Lanes` asks."""
        found: int = await connection.fetchval(QUERIES["stuck"], self._timeout)
        return found
