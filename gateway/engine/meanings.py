"""The check before an attempt sends: whether its scope still means what this process takes it to mean."""

from typing import Protocol

from gateway.core.policy import Policy


class Meanings(Protocol):
    """No process gives a scope another meaning while a process that serves it holds the old one, or while a record of
    it is live.

    So one check between the reserve and the first byte is enough: a process that wants another meaning afterwards finds
    the record.
    """

    def differs(self, policy: Policy) -> bool:
        """Whether this process knows that the scope means something else by now. It must not execute or replay anything
        of it then.
        """
        ...

    def held(self, policy: Policy) -> bool:
        """Whether this process surely holds the policy's scope in the policy's meaning at this moment."""
        ...

    async def confirm(self, policy: Policy) -> bool:
        """As `held`; looks in the database if that is not sure. Raises `StoreUnavailable`."""
        ...


class Unchanging:
    """For a process without others: scopes mean what they mean."""

    def differs(self, _policy: Policy) -> bool:
        return False

    def held(self, _policy: Policy) -> bool:
        return True

    async def confirm(self, _policy: Policy) -> bool:
        return True
