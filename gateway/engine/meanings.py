"""What an attempt asks before it sends: whether its scope still means what this process takes it to mean."""

from typing import Protocol

from gateway.core.policy import Policy


class Meanings(Protocol):
    """Nobody gives a scope another meaning while a process that serves it holds the old one, or while a record of it is live.

    So it is enough to ask once between the reserve and the first byte: whoever wants another meaning afterwards finds the record.
    """

    def differs(self, policy: Policy) -> bool:
        """Whether the scope is known to mean something else by now. Then nothing of it may be executed or replayed here."""
        ...

    def held(self, policy: Policy) -> bool:
        """Whether this process surely holds the policy's scope in the policy's meaning at this moment."""
        ...

    async def confirm(self, policy: Policy) -> bool:
        """As `held`, and looks if that is not sure. Raises `StoreUnavailable`."""
        ...


class Unchanging:
    """Where nobody else is: scopes mean what they mean."""

    def differs(self, _policy: Policy) -> bool:
        return False

    def held(self, _policy: Policy) -> bool:
        return True

    async def confirm(self, _policy: Policy) -> bool:
        return True
