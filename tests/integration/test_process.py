"""What both daemons do when they start, as a process."""

import subprocess
import sys

SHOWS = """
import gc
from consumer.settings import ConsumerSettings
from shared.process import run_process

async def run(settings, telemetry):
    print(gc.get_freeze_count())

run_process("consumer", ConsumerSettings, run, {"CLUSTER_NAME": "a", "REGISTRY_URL": "http://b"})
"""


def test_what_imports_have_left_in_memory_is_not_looked_through_again():
    frozen = int(subprocess.run([sys.executable, "-c", SHOWS], check=True, capture_output=True, text=True).stdout)
    assert frozen > 50_000
