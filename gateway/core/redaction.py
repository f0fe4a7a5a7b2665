"""What is kept and shown of a request's target: not its secrets. What the request means (the fingerprint) is made of it as it came."""

import re

SECRETS = frozenset(
    {
        *(b"access_token", b"api-key", b"api_key", b"apikey", b"auth", b"auth_token", b"authorization", b"client_secret"),
        *(b"credential", b"id_token", b"jwt", b"key_secret", b"passwd", b"password", b"private_key", b"refresh_token", b"secret"),
        *(b"session", b"sessionid", b"session_token", b"sig", b"signature", b"token", b"x-amz-credential", b"x-amz-security-token"),
        *(b"x-amz-signature", b"x-goog-credential", b"x-goog-signature"),
    }
)
"""Query parameters whose values open doors, as APIs are known to call them; in small letters."""

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_HIDDEN = b"***"


def redact_target(target: bytes) -> bytes:
    """The target without the values of `SECRETS`, however their names are escaped; `***` stands for each."""
    path, mark, query = target.partition(b"?")
    if not query:
        return target
    return path + mark + b"&".join([_redacted(pair) for pair in query.split(b"&")])


def redact_text(text: str) -> str:
    """The same of a target, or the template of one, in a configuration."""
    return redact_target(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape") if "?" in text else text


def _redacted(pair: bytes) -> bytes:
    name, equals, value = pair.partition(b"=")
    plain = _ESCAPE.sub(lambda escape: bytes([int(escape[1], 16)]), name) if b"%" in name else name
    return name + equals + _HIDDEN if value and plain.lower() in SECRETS else pair
