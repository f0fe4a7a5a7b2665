"""Why a login at a provider fails. Apart from the provider itself, which needs the extra `oidc`."""


class ProviderAway(Exception):
    """The provider does not answer, or not as it should. `str()` says how, for the log; `status` is what it answers instead of 200."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


class LoginRefused(Exception):
    """The provider, or what it says, does not let the user in. `word` is for the login page: `failed` or `no-role`."""

    def __init__(self, word: str, why: str) -> None:
        super().__init__(why)
        self.word = word
