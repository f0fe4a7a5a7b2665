"""How a JWT may be signed (RFC 7518 section 3.1, RFC 8037)."""

from dataclasses import dataclass, field

from gateway.config.kinds import Choice, did_you_mean, shorten

SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithms that take a shared secret, and its least number of bytes (RFC 7518 section 3.2). All others take public keys."""

PUBLIC_KEY = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@dataclass(frozen=True, slots=True)
class Algorithm(Choice[str]):
    """The name of an algorithm that proves something."""

    words: dict[str, str] = field(default_factory=lambda: {name: name for name in (*PUBLIC_KEY, *SECRET_BYTES)})

    def parse(self, text: str) -> str:
        if text.lower() == "none":
            raise ValueError("`none` is no signature: anybody could write such a token; name what the issuer signs with, such as RS256")
        if text not in self.words:
            meant = next(
                (f"; did you mean `{word}`?" for word in self.words if word.lower() == text.lower()), did_you_mean(text, self.words)
            )
            raise ValueError(f'"{shorten(text)}" is no algorithm that is known here; write {self.wants()}{meant}')
        return text
