"""Roles of operators, and which of them each action needs. This table is the one place that says so."""

import enum
from collections.abc import Mapping


class Role(enum.StrEnum):
    """What a user may do. Each role includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


class Action(enum.StrEnum):
    """What an operator does."""

    SEE = "see"
    """Records and their history, the audit table, routes, figures, the configuration: no stored body."""
    SEE_BODY = "see_body"
    """The stored body of one record; audited."""
    EXPORT = "export"
    """Records as JSON lines; audited."""
    EXPORT_BODIES = "export_bodies"
    """The same with their stored bodies; audited."""
    RESOLVE = "resolve"
    """A verdict, *executed* or *not executed*."""
    RELEASE = "release"
    REQUEUE = "requeue"
    LOOK = "look"
    """Have the next look of an unknown record made at once."""
    APPROVE = "approve"
    """Confirm or reject the verdict that another user has proposed."""
    DELETE = "delete"
    """Forget a record: an operation that was executed may be executed again."""
    ERASE = "erase"
    """Drop all that is stored of one principal."""
    RELOAD = "reload"


NEEDED: Mapping[Action, Role] = {
    Action.SEE: Role.VIEWER,
    Action.SEE_BODY: Role.OPERATOR,
    Action.EXPORT: Role.OPERATOR,
    Action.RESOLVE: Role.OPERATOR,
    Action.RELEASE: Role.OPERATOR,
    Action.REQUEUE: Role.OPERATOR,
    Action.LOOK: Role.OPERATOR,
    Action.APPROVE: Role.APPROVER,
    Action.EXPORT_BODIES: Role.ADMIN,
    Action.DELETE: Role.ADMIN,
    Action.ERASE: Role.ADMIN,
    Action.RELOAD: Role.ADMIN,
}

_RANKS: Mapping[Role, int] = {role: rank for rank, role in enumerate(Role)}


def allowed(role: Role, action: Action) -> bool:
    """Whether a user with this role may do it."""
    return _RANKS[role] >= _RANKS[NEEDED[action]]


def highest(roles: "tuple[Role, ...]") -> Role | None:
    """The role that includes all others of these; None if there are none."""
    return max(roles, key=_RANKS.__getitem__, default=None)
