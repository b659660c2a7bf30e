"""A replay of the name `tuesday` to a broker: what it is called there."""

from replay.target.choice import Target, TargetKind, guise
from tests.unit.replay.replayed import HEADER

NATS = Target(TargetKind.NATS, "nats://127.0.0.1:4222")
OURS = guise("tuesday", NATS, HEADER)
