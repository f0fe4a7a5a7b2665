"""Users of the admin listener."""

from collections.abc import Sequence
from importlib.util import find_spec

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import ABOVE, ADMIN, CONFIG, OIDC, SECOND_APPROVAL, USER
from gateway.config.section import Section
from gateway.core.roles import Action, allowed

SHARED = "admin"
"""The name of whoever has `admin.token`."""


def check_users(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    """A name is one user's, and so is a token: else the audit table could not tell who did something."""
    admin = root.sub(CONFIG.admin)
    if admin.given(ADMIN.oidc):
        yield from _check_provider(admin)
    if admin.given(ADMIN.second_approval):
        yield from _check_second(admin, routes)
    names, digests, subjects = dict[str, int](), dict[bytes, int](), dict[str, int]()
    for index, user in enumerate(admin.each(ADMIN.users)):
        if user.sound(USER.name) and (name := user.get(USER.name)):
            if name == SHARED and admin.has(ADMIN.token):
                yield user.place_of(USER.name), f"`{SHARED}` is the name of whoever has admin.token; use another, or remove that token"
            elif name in names:
                yield user.place_of(USER.name), f"`{name}` is the name of user {names[name] + 1} too"
            names.setdefault(name, index)
        if user.sound(USER.token_digest) and (digest := user.get(USER.token_digest)):
            if digest in digests:
                yield user.place_of(USER.token_digest), f"is that of user {digests[digest] + 1} too; each user has a token of its own"
            digests.setdefault(digest, index)
        if user.sound(USER.subject) and (subject := user.get(USER.subject)):
            if subject in subjects:
                yield user.place_of(USER.subject), f"is that of user {subjects[subject] + 1} too: one person is one user"
            subjects.setdefault(subject, index)
            if not admin.given(ADMIN.oidc):
                yield user.place_of(USER.subject), "is that of the same person at a provider, and there is none: write `oidc`, or remove it"


def _check_provider(admin: Section) -> Findings:
    oidc = admin.sub(ADMIN.oidc)
    if admin.sound(ADMIN.url) and admin.get(ADMIN.url) is None:
        yield admin.place_of(ADMIN.url), "is required with `oidc`: the provider sends browsers back there"
    if oidc.sound(OIDC.roles) and not oidc.get(OIDC.roles):
        yield oidc.place_of(OIDC.roles), "is required: the role of each group, as in {sre: operator}"
    if find_spec("jwt") is None:
        yield admin.place_of(ADMIN.oidc), "needs the extra `oidc`: pip install 'idempotency-gateway[oidc]'"


def _check_second(admin: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    """A verdict that nobody could confirm would wait for ever, and one whose amount nobody captures would need no second person."""
    users, second = admin.each(ADMIN.users), admin.sub(ADMIN.second_approval)
    confirming = [user for user in users if (role := user.get(USER.role)) and allowed(role, Action.APPROVE)]
    everybody = len(users) + admin.has(ADMIN.token)
    if not admin.given(ADMIN.oidc) and admin.sound(ADMIN.users) and (everybody < 2 or not confirming):
        yield admin.place_of(ADMIN.second_approval), "needs two users, of whom one has the role approver or admin (admin.users)"
    above = second.sub(SECOND_APPROVAL.above)
    if not second.given(SECOND_APPROVAL.above) or not above.sound(ABOVE.capture) or not (name := above.get(ABOVE.capture)):
        return
    captured = {name for one in routes if one.route.policy and one.route.policy.reconcile for name, _ in one.route.policy.reconcile.capture}
    if name not in captured:
        yield above.place_of(ABOVE.capture), f"no route captures `{name}`; name it in `reconcile.capture` of those whose amount counts"
