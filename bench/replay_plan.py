"""What `isvc-sync replay --plan` costs: seconds and memory for captures of 10,000 and 100,000 events.

    python -m bench.replay_plan [EVENTS ...]

Each plan runs in a process of its own, as a user would run it, with its output thrown away. The events are those of 300
objects, however many there are: created, ready and not, noise of KServe, new versions, deleted.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from replay.capture import FORMAT, Captured, Facts, Header, Position
from replay.files import writing
from shared.events import Event, EventType
from shared.objects import Kind, ObjectKey
from shared.reduce import digest_of, reduce_object

OBJECTS: Final = 300
CLUSTER_ID: Final = "bench"
_BEGINNING: Final = datetime(2026, 11, 30, tzinfo=UTC)
PREFIX: Final = "modelregistry.kubeflow.org/"


def captured(events: int) -> Iterator[Captured]:
    """Yield so many events, a tenth of a second apart."""
    for number in range(events):
        age, which = divmod(number, OBJECTS)
        yield _event(number + 1, which, age, ends=number + OBJECTS >= events)


def write(path: Path, events: int) -> None:
    header = Header(
        capture=FORMAT,
        created="2026-11-30T00:00:00Z",
        tool="bench",
        cluster="bench",
        cluster_id=CLUSTER_ID,
        source="stream",
        stream="ISVC_EVENTS",
    )
    with writing(path, header) as writer:
        writer.write(
            Facts(
                models=("1", "2", "3"),
                versions={f"{model}{each}": str(model) for model in (1, 2, 3) for each in (1, 2)},
            )
        )
        for line in captured(events):
            writer.write(line)


def _event(seq: int, which: int, age: int, *, ends: bool) -> Captured:
    time_ = (_BEGINNING + timedelta(seconds=seq / 10)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    model = str(which % 3 + 1)
    name, namespace, uid = f"model-{which}", f"team-{which % 10}", f"uid-{which}"
    raw: dict[str, Any] = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(1000 + seq),
            "generation": 1 + age // 10,
            "creationTimestamp": "2026-11-30T00:00:00Z",
            "labels": {
                PREFIX + "registered-model-id": model,
                PREFIX + "model-version-id": f"{model}{1 + age // 10 % 2}",
            },
            "annotations": {"serving.kserve.io/deploymentMode": "Standard"},
        },
        "spec": {
            "predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": f"s3://models/{age // 10 % 4}"}}
        },
        "status": _status(name, namespace, age),
    }
    if ends:
        raw["metadata"]["deletionTimestamp"] = "2026-11-30T01:00:00Z"
    reduced = reduce_object(raw)
    kind = EventType.CREATED if age == 0 else EventType.DELETED if ends else EventType.UPDATED
    event = Event(
        type=kind,
        key=ObjectKey(Kind.ISVC, namespace, name),
        uid=uid,
        epoch=1796000000,
        resource_version=str(1000 + seq),
        digest=digest_of(reduced),
        models=(model,),
        cluster_id=CLUSTER_ID,
        time=time_,
    )
    return Captured(event, msgspec.json.encode(reduced), Position(seq, "", time_))


def _status(name: str, namespace: str, age: int) -> dict[str, Any]:
    if age == 0:
        return {}
    ready = "True" if age % 3 else "False"
    return {
        "url": f"http://{name}-{namespace}.example.com",
        "deploymentMode": "Standard",
        "conditions": [
            {"type": kind, "status": ready, "reason": "NewReplicaSetAvailable"} for kind in ("Ready", "PredictorReady")
        ],
        "clusterServingRuntimeName": "kserve-sklearnserver",
        "modelStatus": {"transitionStatus": "UpToDate", "copies": {"totalCopies": 1 + age % 2}},
    }


def main(counts: list[int]) -> None:
    print(f"{'events':>8} {'file MB':>8} {'seconds':>8} {'CPU s':>8} {'us/event':>9} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as directory:
        for count in counts:
            path = Path(directory) / f"{count}.jsonl"
            write(path, count)
            seconds, cpu_s, peak_mb = measured(path)
            size_mb = path.stat().st_size / 1e6
            per_event = cpu_s / count * 1e6
            print(f"{count:>8} {size_mb:>8.1f} {seconds:>8.2f} {cpu_s:>8.2f} {per_event:>9.0f} {peak_mb:>8.1f}")


def measured(path: Path) -> tuple[float, float, float]:
    """Return seconds, CPU seconds (on a busy machine the better figure) and the peak of memory in MB of one plan.

    Its start is included.
    """
    script = "import resource,sys\nfrom cli.replaying.plan import Options, run\nfrom pathlib import Path\n"
    script += "code = run(Options(file=Path(sys.argv[1])))\nused = resource.getrusage(resource.RUSAGE_SELF)\n"
    script += "print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)\nsys.exit(code)"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    seconds = time.monotonic() - began
    cpu_s, peak_kb = done.stderr.split()[-2:]
    return seconds, float(cpu_s), int(peak_kb) / 1024


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [10_000, 100_000])
