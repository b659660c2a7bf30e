"""The health endpoints: database and migrations (`isDirty`), and every kind of record (`health`)."""

from datetime import UTC, datetime
from typing import Any

from sandbox.registry.errors import BAD_FILTER
from sandbox.registry.kinds import (
    INFERENCE_SERVICE,
    MODEL_ARTIFACT,
    MODEL_VERSION,
    REGISTERED_MODEL,
    SERVING_ENVIRONMENT,
)
from sandbox.registry.store import Store

SUFFIXES = ("/readyz/health", "/readyz/isDirty")
_SCHEMA_VERSION = 25


def problem(path: str, fault: str | None) -> str | None:
    """Return the sentence that a failing check answers; None when all is well."""
    if fault is None:
        return None
    if path.endswith("/readyz/isDirty"):
        return f"schema_migrations query error: {fault}"
    cause = f"{BAD_FILTER}: bad request" if "SQLSTATE" in fault else fault
    return f"failed to list registered models: error listing registered models: {cause}"


def report(path: str, store: Store, now_ms: int, complaint: str | None) -> dict[str, Any]:
    """Return the long form of the answer. The inner keys are capitalised, the outer ones are not."""
    status = "pass" if complaint is None else "fail"
    database = {"schema_dirty": False, "schema_version": _SCHEMA_VERSION}
    now = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    checks = {
        "database": _check("database", status, complaint or "database is healthy", database),
        "meta": _check("meta", status, "", {"check_duration_ms": 1, "timestamp": now}),
    }
    if path.endswith("/readyz/health"):
        message = complaint or "model registry service is healthy"
        checks["model-registry"] = _check("model-registry", status, message, _counts(store))
    return {"status": status, "checks": checks}


def _check(name: str, status: str, message: str, details: dict[str, Any]) -> dict[str, Any]:
    return {"Name": name, "Status": status, "Message": message, "Details": details}


def _counts(store: Store) -> dict[str, Any]:
    counts = {
        "artifacts": store.count(MODEL_ARTIFACT),
        "experiment_runs": 0,
        "experiments": 0,
        "inference_services": store.count(INFERENCE_SERVICE),
        "model_versions": store.count(MODEL_VERSION),
        "registered_models": store.count(REGISTERED_MODEL),
        "serving_environments": store.count(SERVING_ENVIRONMENT),
    }
    details: dict[str, Any] = {"total_resources_checked": 5}
    for name, count in counts.items():
        details |= {f"{name}_accessible": True, f"{name}_count": count}
    return details
