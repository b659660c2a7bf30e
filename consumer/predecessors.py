"""What earlier controllers (Kubeflow's, Open Data Hub's) leave behind: records, finalizers, labels. Pure.

Their record has our name form, but neither an externalId nor a property of ours. So it does not say which cluster it is
of: that follows from the uid, where the object lives, and is for a person to say where it does not.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from consumer.records import PROPERTY, Record
from shared.reduce import REGISTRY_PREFIXES

FINALIZERS: Final = tuple(f"{prefix}finalizer" for prefix in REGISTRY_PREFIXES)

# An API server makes random uids of this form, so nobody else's name looks like this.
_NAME: Final = re.compile(r"(?P<name>[a-z0-9.-]{1,253})/(?P<uid>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def is_unclaimed(record: Record) -> bool:
    """Whether nothing in a record says that it is isvc-sync's, of any cluster.

    A property of ours that does not decode was edited by hand: it is no predecessor's.
    """
    return record.external_id == "" and PROPERTY not in record.properties


def named_object(record: Record) -> tuple[str, str] | None:
    """Return name and uid of the object that an unclaimed record is about; None when it is no predecessor's."""
    found = _NAME.fullmatch(record.name)
    if found is None or not is_unclaimed(record) or not record.model_id:
        return None
    return found["name"], found["uid"]


def is_about(record: Record, name: str, uid: str) -> bool:
    """Whether a record says that it is about the object of that name and uid: by its externalId or by its name."""
    base = f"{name}/{uid}"
    return record.external_id.startswith(f"kserve:{uid}/") or record.name == base or record.name.startswith(f"{base}/")


def strip_operations(uid: str, finalizers: Sequence[str]) -> list[dict[str, Any]]:
    """Return the JSON patch that takes exactly the predecessors' finalizers off exactly this object; [] for none.

    Each is tested at its place, and removed from the last to the first, so that the others keep their place. Whoever
    changes the list in between makes the patch fail: nobody else's finalizer can go in its stead.
    """
    places = [place for place, value in enumerate(finalizers) if value in FINALIZERS]
    if not places:
        return []
    tests = [{"op": "test", "path": f"/metadata/finalizers/{each}", "value": finalizers[each]} for each in places]
    removals = [{"op": "remove", "path": f"/metadata/finalizers/{each}"} for each in reversed(places)]
    return [{"op": "test", "path": "/metadata/uid", "value": uid}, *tests, *removals]
