"""What nats-py raises, in our words. Everybody who calls JetStream does so inside `translated`."""

import asyncio
import contextlib
from collections.abc import Iterator

import nats.errors
import nats.js.errors

from shared.errors import PermanentError, UnreachableError


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what nats-py raises into our errors; `what` begins the sentence ("reading the stream ISVC_EVENTS").

    A cancellation that arrives together with a reply is lost in `asyncio.wait_for` on Python 3.11, which nats-py uses:
    the call returns as if nothing had been. It is raised here, else the process might never end.
    """
    try:
        yield
        _raise_lost_cancellation()
    except (nats.errors.TimeoutError, nats.errors.NoRespondersError, nats.js.errors.ServiceUnavailableError) as error:
        raise UnreachableError(f"{what}: JetStream did not answer ({_reason(error)})") from error
    except nats.js.errors.APIError as error:
        raise PermanentError(f"{what}: {_reason(error)}") from error
    except nats.errors.Error as error:
        raise UnreachableError(f"{what}: {_reason(error)}") from error


def _raise_lost_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _reason(error: Exception) -> str:
    if isinstance(error, nats.js.errors.APIError) and getattr(error, "description", None):
        return f"{error.description}, code {error.err_code}"
    return str(error) or type(error).__name__
