"""One message as it comes from the event stream, and the answers that it takes.

The pull loop makes it, the keyed worker holds it until the effect is done, then answers. Answers are plain publishes:
one that is lost costs a redelivery, which freshness drops.
"""

from typing import Final, Self

from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.broker_errors import translated
from shared.errors import BadEventError

ACK_PREFIX: Final = "$JS.ACK."

_SHORT_TOKENS: Final = 9  # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>
_LONG_TOKENS: Final = 11  # with <domain>.<account hash> before the stream; a 12th, random token may follow


class Origin(Struct, frozen=True):
    """What the reply subject of a delivered message says about it (ADR-15). The time is a Unix time in nanoseconds."""

    stream: str
    consumer: str
    num_delivered: int
    sequence: int
    timestamp_ns: int


def parse_reply(reply: str) -> Origin:
    """Read a reply subject in either of its forms. Raises BadEventError."""
    tokens = reply.split(".")
    if len(tokens) >= _LONG_TOKENS:
        del tokens[2:4]
    elif len(tokens) != _SHORT_TOKENS:
        raise BadEventError(f"reply subject {reply[:200]!r} has {len(tokens)} tokens instead of 9, 11 or 12")
    try:
        return Origin(tokens[2], tokens[3], int(tokens[4]), int(tokens[5]), int(tokens[7]))
    except ValueError as error:
        raise BadEventError(f"reply subject {reply[:200]!r} holds a number that is none: {error}") from error


class Delivery(Struct, frozen=True, eq=False):
    """One message in hand. `sequence` is its place in the stream: two deliveries of the same one are one message.

    `num_delivered` counts from the last reset of the consumer. `timestamp_ns` is when the broker stored it (Unix time
    in nanoseconds). Every answer raises UnreachableError when it cannot even be buffered.
    """

    subject: str
    headers: dict[str, str]
    body: bytes
    sequence: int
    num_delivered: int
    timestamp_ns: int
    stream: str
    reply: str
    client: Client

    @classmethod
    def of(cls, message: Msg, origin: Origin, client: Client) -> Self:
        return cls(
            subject=message.subject,
            headers=message.headers or {},
            body=message.data,
            sequence=origin.sequence,
            num_delivered=origin.num_delivered,
            timestamp_ns=origin.timestamp_ns,
            stream=origin.stream,
            reply=message.reply,
            client=client,
        )

    @property
    def provenance(self) -> dict[str, str]:
        """Where the message came from, as headers for its burial."""
        return {
            "isvc-subject": self.subject,
            "isvc-stream": self.stream,
            "isvc-seq": str(self.sequence),
            "isvc-deliveries": str(self.num_delivered),
        }

    async def ack(self) -> None:
        """Say that it is done."""
        await self._answer(b"+ACK")

    async def in_progress(self) -> None:
        """Begin `ack_wait` anew."""
        await self._answer(b"+WPI")

    async def terminate(self, reason: str) -> None:
        """Never deliver it again; the reason appears in the server's advisory MSG_TERMINATED."""
        await self._answer(b"+TERM " + reason.encode())

    async def _answer(self, answer: bytes) -> None:
        with translated(f"answering message {self.sequence} of {self.stream}"):
            await self.client.publish(self.reply, answer)
