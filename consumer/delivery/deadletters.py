"""The dead letters: what can never succeed, kept for a person to see, one entry per object.

The handler buries a message here and terminates it only afterwards, so a crash in between buries it twice, into the
same entry. An entry is the original message, byte for byte, plus headers that say why it is here and where it was:
`isvc-reason` (percent-encoded), and the headers of `Delivery.provenance`.
"""

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from nats.js.api import Header

from shared.broker import Broker
from shared.broker_errors import translated
from shared.errors import PermanentError, TransientError
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects, escape, unescape

logger = logging.getLogger(__name__)

_REASON_LIMIT: Final = 1000  # characters; more is no reason but a document
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # what nats-py agrees to send
_LISTED_SUBJECTS: Final = 100_000  # as many as the server names in one answer


class DeadLetterStream:
    """The port `DeadLetters` on the stream ISVC_DLQ.

    It remembers which objects have an entry, so that `clear`, called after every applied event, costs a call only when
    there is one. `load` must run before the first `clear`, and again when shards come from another owner, who may have
    buried something meanwhile.

    Everything raises TransientError (or UnreachableError, its subclass) and nothing else: a message that cannot be
    buried now is kept, and buried later.
    """

    def __init__(self, broker: Broker, subjects: Subjects, stream: str) -> None:
        self._broker = broker
        self._subjects = subjects
        self._stream = stream
        self._base = subjects.all_dead_letters().removesuffix(">")
        self._keys: set[ObjectKey] = set()
        self._unknown: set[str] = set()

    async def load(self) -> None:
        """Learn from the broker which entries exist."""
        before, unknown_before = set(self._keys), set(self._unknown)
        with _retryable(f"reading the subjects of {self._stream}"):
            info = await self._broker.jetstream.stream_info(self._stream, self._subjects.all_dead_letters())
        subjects = info.state.subjects or {}
        if len(subjects) >= _LISTED_SUBJECTS:
            logger.warning("more dead letters than the broker lists: some stay when their objects recover")
        found = {subject: self._key_of(subject) for subject in subjects}
        # What was buried while the answer was on its way stays known.
        self._keys = {key for key in found.values() if key is not None} | (self._keys - before)
        self._unknown = {subject for subject, key in found.items() if key is None} | (self._unknown - unknown_before)

    def entries(self) -> frozenset[ObjectKey]:
        """Return the objects that have an entry."""
        return frozenset(self._keys)

    @property
    def count(self) -> int:
        """The number of entries, those of unknown subjects included."""
        return len(self._keys) + len(self._unknown)

    async def bury(self, key: ObjectKey, headers: dict[str, str], body: bytes, reason: str) -> None:
        """Store the message with its reason; return when the broker has it. An earlier entry of the object goes."""
        self._keys.add(key)  # before: when no answer comes, it may have been stored all the same
        await self._store(self._subjects.dead_letter(key), headers, body, reason)

    async def bury_unknown(self, subject: str, headers: dict[str, str], body: bytes, reason: str) -> None:
        """Store a message whose subject names no object of ours: one entry per original subject."""
        entry = f"{self._base}unknown.{escape(subject)}"
        self._unknown.add(entry)
        await self._store(entry, headers, body, reason)

    def holds(self, key: ObjectKey) -> bool:
        return key in self._keys

    async def clear(self, key: ObjectKey) -> None:
        """Remove the object's entry, if there is one."""
        if key not in self._keys:
            return
        with _retryable(f"clearing the dead letter of {key}"):
            await self._broker.jetstream.purge_stream(self._stream, subject=self._subjects.dead_letter(key))
        self._keys.discard(key)

    async def _store(self, subject: str, headers: dict[str, str], body: bytes, reason: str) -> None:
        sent = {name: value for name, value in headers.items() if _may_travel(name)}
        sent["isvc-reason"] = quote(reason[:_REASON_LIMIT])
        room = self._broker.max_payload_bytes - _size_of(sent) - _size_of({Header.EXPECTED_STREAM.value: self._stream})
        if len(body) > room:
            # The broker would cut the connection. The event stream still has the whole (isvc-stream, isvc-seq).
            sent["isvc-truncated"] = "true"
            body = b""
        with _retryable(f"burying a message as {subject}"):
            await self._broker.jetstream.publish(subject, body, stream=self._stream, headers=sent)

    def _key_of(self, subject: str) -> ObjectKey | None:
        try:
            kind, namespace, name = subject.removeprefix(self._base).split(".")
            return ObjectKey(Kind(kind), unescape(namespace), unescape(name))
        except ValueError:
            return None


def _may_travel(name: str) -> bool:
    """Leave out orders to the server, and names that cannot be sent.

    The original `Nats-Msg-Id` would make the dedupe window swallow a second burial, `Nats-Rollup` would empty the
    stream.
    """
    return not name.lower().startswith("nats-") and _HEADER_NAME.fullmatch(name) is not None


def _size_of(headers: dict[str, str]) -> int:
    """Return at least what the headers take on the wire."""
    return len("NATS/1.0\r\n\r\n") + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())


@contextlib.contextmanager
def _retryable(what: str) -> Iterator[None]:
    """Translate errors; a refusal is transient, too: burying is the last resort, and the broker can be mended."""
    try:
        with translated(what):
            yield
    except PermanentError as error:
        raise TransientError(str(error)) from error
