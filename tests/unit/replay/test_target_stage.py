"""What is told of readers that take too long."""

import pytest

from replay.target.nats import Reading
from replay.target.stage import Around, EventStage
from shared.errors import UnreachableError
from tests.unit.replay.guises import OURS


class Unread:
    """Streams whose events nobody settles."""

    async def reading(self) -> Reading:
        return Reading(consumers=1, unsettled=3)


async def told(around: Around) -> str:
    with pytest.raises(UnreachableError) as caught:
        await EventStage(Unread(), OURS, 0.001, around).settled()
    return str(caught.value)


async def test_of_a_consumer_whose_log_goes_with_the_replay_the_last_line_is_told():
    said = await told(Around(log=lambda: "registry: 503"))
    assert said.endswith("give --wait-s more; the last line of their consumer's log: registry: 503.")


async def test_of_somebody_elses_consumer_the_log_is_pointed_to():
    assert (await told(Around())).endswith("give --wait-s more, or see in its log what it waits for.")
