"""The names that records give this cluster: another one than CLUSTER_NAME is most often a setting mistyped. Pure."""

from collections.abc import Iterable

from consumer.records import Identity, Record


def other_names(records: Iterable[Record], us: Identity) -> tuple[str, ...]:
    """Return the other names under which records that are not UNDEPLOYED were written for our cluster id.

    After a change of CLUSTER_NAME the consumers write the new one into every record but the undeployed ones.
    """
    stamps = (each.stamp for each in records if each.deployed is not False)
    ours = (stamp.cluster for stamp in stamps if stamp is not None and stamp.cluster_id == us.cluster_id)
    return tuple(sorted({name for name in ours if name != us.cluster}))


def doubt(names: Iterable[str], cluster: str) -> list[str]:
    """Return the line that tells of other names, for people; none where there are none."""
    told = ", ".join(map(repr, names))
    if not told:
        return []
    return [f"Check CLUSTER_NAME: records of this cluster's id say {told}, CLUSTER_NAME is {cluster!r}."]
