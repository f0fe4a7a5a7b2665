"""Who asks, and whether that one may. What a caller says about itself is never believed of somebody whom a token or a session names."""

from dataclasses import dataclass

from gateway.core.roles import NEEDED, Action, Role, allowed
from gateway.operate.operations.inputs import By


class Forbidden(Exception):
    """The caller's role is too low. `str()` is a sentence that names the one needed."""

    def __init__(self, caller: "Caller", action: Action) -> None:
        self.needed = NEEDED[action]
        super().__init__(f"This needs the role {self.needed}; {caller.name or 'you'} has the role {caller.role}.")


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why somebody asks for something; and as whom, where nothing else tells, or for whom. Raises `Wrong`, as `By` does."""

    reason: str
    actor: str | None = None

    def __post_init__(self) -> None:
        By("somebody" if self.actor is None else self.actor, self.reason)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `name` None: somebody of this machine, whom nothing names, so that `Grounds.actor` counts.

    `identity` tells two callers apart for good: a name of a provider's user may change. `session` is the id of a browser's session, and
    None for programs.
    """

    name: str | None
    role: Role
    identity: str = ""
    session: bytes | None = None

    def may(self, action: Action) -> bool:
        return allowed(self.role, action)

    def check(self, action: Action) -> None:
        """Raises `Forbidden`."""
        if not self.may(action):
            raise Forbidden(self, action)

    def by(self, grounds: Grounds) -> By:
        """Raises `Wrong`. An actor that is not the caller is whom the caller says to act for."""
        if self.name is None:
            return By(grounds.actor or "", grounds.reason)
        return By(self.name, grounds.reason, None if grounds.actor in {None, self.name} else grounds.actor, self.identity)


ANYBODY = Caller(None, Role.ADMIN)
"""Whoever reaches a listener that knows no token and no users, and whoever runs a command where there are no users."""
