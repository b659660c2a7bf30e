"""What one list finds out, the others have to know."""

from types import SimpleNamespace

import pytest

from producer.term import Connections, Office, Term


class Relay:
    """Notes why it is to list again."""

    def __init__(self, *, in_pass=False):
        self.inventory = SimpleNamespace(in_pass=in_pass)
        self.reflector = self
        self.wanted = []

    def resync(self, reason):
        self.wanted.append(reason)


@pytest.fixture
def term():
    links = Connections(SimpleNamespace(client=None), None, "c", SimpleNamespace(leads=lambda: True), "me")
    return Term(Office(None, None, None, links))


def test_R16_when_one_list_finds_etcd_restored_all_others_are_read_again(term):
    found, watching, listing = term._relays = Relay(), Relay(), Relay(in_pass=True)
    term._restored(found)
    assert (found.wanted, listing.wanted) == ([], []), "the one has found out, the other reads the new state anyway"
    assert watching.wanted == ["etcd was restored"]
