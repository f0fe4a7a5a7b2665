"""How a JWT may be signed (RFC 7518 section 3.1, RFC 8037)."""

from dataclasses import dataclass

from gateway.core.kinds import Choice, did_you_mean, shorten

SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithms that take a shared secret, and its least number of bytes (RFC 7518 section 3.2). All others take public
keys.
"""

PUBLIC_KEY = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@dataclass(frozen=True)
class Algorithm(Choice):
    """The name of an algorithm that proves something."""

    @classmethod
    def any(cls) -> "Algorithm":
        return cls({name: name for name in (*PUBLIC_KEY, *SECRET_BYTES)})

    def parse(self, text: str) -> str:
        if text.lower() == "none":
            raise ValueError("`none` is no signature: anybody could write such a token; name what the issuer signs with, such as RS256")
        if text not in self.words:
            same = next((f"; did you mean `{word}`?" for word in self.words if word.lower() == text.lower()), None)
            meant = same or did_you_mean(text, self.words)
            raise ValueError(f'"{shorten(text)}" is no algorithm that is known here; write {self.wants()}{meant}')
        return text
