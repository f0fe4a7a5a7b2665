"""Why a login at a provider fails. Apart from the provider itself, which needs the extra `oidc`."""


class ProviderAway(Exception):
    """The provider does not answer, or not as it should. `str()` says how, for the log."""


class LoginRefused(Exception):
    """The provider, or what it says, does not let the user in. `word` is for the login page: `failed` or `no-role`."""

    def __init__(self, word: str, why: str) -> None:
        super().__init__(why)
        self.word = word
