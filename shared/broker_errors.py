"""What nats-py raises, in our words. Everybody who calls JetStream does so inside `translated`."""

import contextlib
from collections.abc import Iterator

import nats.errors
import nats.js.errors

from shared.errors import PermanentError, UnreachableError


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what nats-py raises into our errors; `what` begins the sentence ("reading the stream ISVC_EVENTS")."""
    try:
        yield
    except (nats.errors.TimeoutError, nats.errors.NoRespondersError, nats.js.errors.ServiceUnavailableError) as error:
        raise UnreachableError(f"{what}: JetStream did not answer ({_reason(error)})") from error
    except nats.js.errors.APIError as error:
        raise PermanentError(f"{what}: {_reason(error)}") from error
    except nats.errors.Error as error:
        raise UnreachableError(f"{what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, nats.js.errors.APIError) and getattr(error, "description", None):
        return f"{error.description}, code {error.err_code}"
    return str(error) or type(error).__name__
