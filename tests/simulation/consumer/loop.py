"""The loop of the simulation is the one by which captures are explored."""

from replay.exploring.loop import OWNER, VirtualLoop

__all__ = ["OWNER", "VirtualLoop"]
