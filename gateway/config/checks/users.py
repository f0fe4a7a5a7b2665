"""Users of the admin listener."""

from gateway.config.checks.common import Findings
from gateway.config.names import ADMIN, CONFIG, USER
from gateway.config.section import Section

SHARED = "admin"
"""The name of whoever has `admin.token`."""


def check_users(root: Section) -> Findings:
    """A name is one user's, and so is a token: else the audit table could not tell who did something."""
    admin = root.sub(CONFIG.admin)
    names, digests = dict[str, int](), dict[bytes, int]()
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
