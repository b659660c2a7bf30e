"""What the documentation shows is true: the settings, the commands, the links."""

import re
from pathlib import Path

import pytest

from consumer.settings import ConsumerSettings
from producer.settings import ProducerSettings
from shared.settings import describe

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

PLAN_PAGE = "tests/unit/replay/test_plan_page.py"
TIMELINE_TEST = "tests/unit/replay/test_timeline_page.py"
EXPLORE_PAGE = "tests/unit/replay/test_explore_page.py"
RECORD_PAGE = "tests/integration/replay/test_record_world.py"

# Every command that a page shows as something to type, and what executes it.
EXECUTED_BY = {
    "make demo": "tests/e2e/test_demo.py",
    "make check": ".ci/run",
    "make test": ".ci/run",
    "make test-browser": ".ci/run",
    "make test-cluster": ".ci/run",
    "kubectl apply --server-side -k k8s/base": "tests/deploy/test_cluster.py",
    "kubectl label inferenceservice iris modelregistry.kubeflow.org/registered-model-id=1 "
    "modelregistry.kubeflow.org/model-version-id=2": "tests/cluster/test_story.py",
    "isvc-sync replay tests/captures/golden/rollout.jsonl": PLAN_PAGE,
    "isvc-sync replay tests/captures/golden/outage.jsonl --only team-a/changes --from 23": PLAN_PAGE,
    "isvc-sync replay tests/captures/golden/outage.jsonl --until 2026-12-01T05:13:26Z -o json": PLAN_PAGE,
    "isvc-sync diff tests/captures/golden/outage.jsonl tests/captures/golden/takeover.jsonl": PLAN_PAGE,
    "isvc-sync diff tests/captures/golden/storm.jsonl --against ../isvc-sync-next": PLAN_PAGE,
    "isvc-sync record story.jsonl.zst": RECORD_PAGE,
    "isvc-sync record story.jsonl.zst --from 2026-11-30T10:00:00Z --until 2026-11-30T11:00:00Z": RECORD_PAGE,
    "isvc-sync record story.jsonl.zst --namespace team-a --only team-b/iris --kind isvc": RECORD_PAGE,
    "isvc-sync record story.jsonl.zst --follow": RECORD_PAGE,
    "isvc-sync record story.jsonl.zst --for 30s": RECORD_PAGE,
    "kubectl logs -n isvc-sync -l app.kubernetes.io/component=consumer --tail=-1 > consumers.log": RECORD_PAGE,
    "isvc-sync record story.jsonl.zst --log consumers.log": RECORD_PAGE,
    "isvc-sync record story.jsonl --from-cluster --no-registry --follow": RECORD_PAGE,
    "kubectl get isvc -A -w -o json --output-watch-events > watch.json": RECORD_PAGE,
    "isvc-sync record story.jsonl --from-watch watch.json": RECORD_PAGE,
    "isvc-sync redact story.jsonl.zst public.jsonl.gz --anonymous": RECORD_PAGE,
    "isvc-sync validate story.jsonl.zst": RECORD_PAGE,
    "isvc-sync stats story.jsonl.zst": RECORD_PAGE,
    "isvc-sync timeline tests/captures/golden/outage.jsonl -o outage.html": TIMELINE_TEST,
    "isvc-sync timeline tests/captures/golden/outage.jsonl -o changes.html --only team-a/changes": TIMELINE_TEST,
    "isvc-sync explore tests/captures/golden/outage.jsonl --seeds 20 --workers 4": EXPLORE_PAGE,
    "isvc-sync explore tests/captures/golden/delete-recreate.jsonl --seed 17 --seeds 1 --workers 4 -o json": (
        EXPLORE_PAGE
    ),
    "isvc-sync explain team-a/changes --from tests/captures/golden/outage.jsonl": (
        "tests/integration/replay/test_explain_capture.py"
    ),
    "isvc-sync explain team-a/m-1": "tests/integration/replay/test_explain_live.py",
    "isvc-sync explain team-a/talker --kind llmisvc -o json": "tests/integration/replay/test_explain_live.py",
}


def settings_table() -> str:
    """Return README's table, made from the settings themselves."""
    rows: dict[str, list[str]] = {}
    for process, settings in (("producer", ProducerSettings), ("consumer", ConsumerSettings)):
        for row in describe(settings):
            default = "**must be set**" if row.default is None else f"`{row.default}`" if row.default else ""
            cells = rows.setdefault(row.variable, ["", default, row.description])
            cells[0] = "both" if cells[0] else process
    lines = [f"| `{variable}` | {' | '.join(cells)} |" for variable, cells in rows.items()]
    return "\n".join(["| variable | read by | default | what it is |", "| --- | --- | --- | --- |", *lines])


def test_the_table_of_settings_is_what_the_processes_read():
    shown = re.search(r"<!-- settings: begin.*?-->\n(.*?)\n?<!-- settings: end -->", README, re.DOTALL)[1]
    assert shown.strip() == settings_table()


def console_commands(page: Path) -> list[str]:
    return [
        line
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.splitlines()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_is_executed_by_a_test(page):
    assert [command for command in console_commands(page) if command not in EXECUTED_BY] == []


@pytest.mark.parametrize(("command", "place"), EXECUTED_BY.items(), ids=EXECUTED_BY)
def test_the_place_that_executes_a_command_exists_and_names_it(command, place):
    text = (ROOT / place).read_text()
    words = [word for word in command.split() if not word.startswith("-")]
    assert all(word in text for word in words[1:2]), f"{place} does not name {words[1]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
