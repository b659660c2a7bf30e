"""A server that is played, on a virtual clock, and the first pull that it sees."""

import asyncio
import json
from types import SimpleNamespace

import nats.errors
import nats.js.errors


class PlayedBroker:
    """A server that says only what the test makes it say."""

    def __init__(self):
        self.client = self
        self.jetstream = self
        self.is_connected = True
        self.stats = {"reconnects": 0}
        self.hooks = []
        self.pulls = []  # (time, batch)
        self.resets = []  # times
        self.inboxes = []
        self.subscriptions = {}
        self.consumer_exists = True
        self.reset_errors = []
        self.publish_error = None

    def on_reconnect(self, hook):
        self.hooks.append(hook)

    def new_inbox(self):
        self.inboxes.append(f"_INBOX.{len(self.inboxes)}")
        return self.inboxes[-1]

    async def subscribe(self, inbox, *, cb, pending_msgs_limit, pending_bytes_limit):
        assert (pending_msgs_limit, pending_bytes_limit) == (0, 0)
        self.subscriptions[inbox] = cb

        async def unsubscribe():
            del self.subscriptions[inbox]

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def publish(self, subject, payload, reply):
        assert subject == "$JS.API.CONSUMER.MSG.NEXT.S.C"
        assert reply == self.inboxes[-1]
        if self.publish_error is not None:
            raise self.publish_error
        self.pulls.append((now(), json.loads(payload)["batch"]))

    async def reset_consumer(self, stream, consumer, timeout):  # noqa: ASYNC109 - as in nats-py
        if self.reset_errors:
            raise self.reset_errors.pop(0)
        if not self.consumer_exists:
            raise nats.errors.TimeoutError  # as the real server: no answer at all
        self.resets.append(now())

    async def consumer_info(self, stream, consumer, timeout):  # noqa: ASYNC109 - as in nats-py
        if not self.consumer_exists:
            raise nats.js.errors.NotFoundError(code=404, err_code=10014, description="consumer not found")

    async def ensure(self):
        self.consumer_exists = True

    async def round_trip(self):
        return True

    async def says(self, code, **headers):
        await self.subscriptions[self.inboxes[-1]](
            SimpleNamespace(reply="", subject=self.inboxes[-1], headers={"Status": code, **headers}, data=b"")
        )

    async def delivers(self, sequence, reply=None):
        reply = reply or f"$JS.ACK.S.C.1.{sequence}.1.1.0"
        await self.subscriptions[self.inboxes[-1]](
            SimpleNamespace(reply=reply, subject="isvc.c.evt.3.isvc.ns.a", headers=None, data=b"x")
        )

    async def beats_for(self, seconds):
        until = now() + seconds
        while now() < until:
            await asyncio.sleep(0.4)
            await self.says("100")


def now():
    return asyncio.get_running_loop().time()


async def first_pull(pull_loop, broker):
    """Start the loop; in the test itself, since the clock is virtual only there."""
    pull_loop.start()
    await asyncio.sleep(0.01)
    assert [batch for _, batch in broker.pulls] == [8]
