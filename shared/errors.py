"""The errors that cross a border: what the outside did to us, in words of consequence.

Adapters translate whatever their library raises into these classes (`raise ... from error`); nothing above an adapter
knows status codes. What an error means for the work at hand is decided in one place, `consumer/verdict.py`.

    IsvcSyncError
    ├── SettingsError         a setting is missing or wrong: the process cannot start
    ├── RefusedToStartError   the world does not fit the settings (another cluster under our name, server too old)
    ├── BadEventError         bytes that are no event of ours: never retried
    ├── TransientError        try again later, without limit
    │   ├── UnreachableError  no connection, a timeout, an answer cut short
    │   ├── UnauthorizedError credentials refused: read them again, then try again
    │   ├── UnsettledError    nobody can say yet where it belongs: perhaps a newer state does
    │   └── NotSentError      held back by ourselves: it had no effect, and says nothing about what was asked
    ├── ConflictError         somebody else wrote first: look again
    ├── NotFoundError         the answer says that it does not exist, from a call whose 404 can be believed
    └── PermanentError        no repetition helps: for a person to see
"""


class IsvcSyncError(Exception):
    """The root: everything that we raise on purpose."""


class SettingsError(IsvcSyncError):
    """One or more settings are missing or wrong; the message names each variable and the way out."""


class RefusedToStartError(IsvcSyncError):
    """Settings are well-formed, but the world contradicts them; the message says both sides and the way out."""


class BadEventError(IsvcSyncError):
    """A message in our stream does not decode; the message names the subject and what is wrong."""


class TransientError(IsvcSyncError):
    """The same request may succeed later.

    `retry_after_s` is the server's own wish in seconds (`Retry-After`), or None.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnreachableError(TransientError):
    """No answer: refused, timed out, cut short. Whether the request had its effect is unknown."""


class UnauthorizedError(TransientError):
    """401 or a proxy's 403: the credentials of this moment do not do."""


class UnsettledError(TransientError):
    """What is asked for is not there, or not unique: it may come to be, or a newer state may ask for something else."""


class NotSentError(TransientError):
    """Nothing left this process: the server is known to be away or overloaded, or our right to act ends."""


class ConflictError(IsvcSyncError):
    """The state of the world is not what the request assumed (409, a failed test of a JSON patch)."""


class NotFoundError(IsvcSyncError):
    """It does not exist, and the call is one whose 404 can be believed."""


class PermanentError(IsvcSyncError):
    """The request can never succeed as it is; the reason is fit for a person and free of secrets."""
