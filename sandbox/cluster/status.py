"""Errors as the API server words them: one exception, and a constructor for each `Status` that clients tell apart."""

from typing import Any

Obj = dict[str, Any]
"""A Kubernetes object, or a part of one, as decoded JSON."""


class ApiError(Exception):
    """An answer that is no success; `status()` is its body."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.continue_token = ""

    @property
    def retry_after_s(self) -> int | None:
        """Seconds for the `Retry-After` header, where the server gives one."""
        wait: int | None = self.details.get("retryAfterSeconds")
        return wait

    def status(self) -> Obj:
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure"}
        body |= {"message": self.message, "reason": self.reason, "code": self.code}
        if not self.reason:
            del body["reason"]
        if self.details:
            body["details"] = self.details
        return body


def qualified(plural: str, group: str) -> str:
    """Name a resource as messages do: `inferenceservices.serving.kserve.io`, `configmaps`."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str) -> Obj:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    what = qualified(plural, group) + (f' "{name}"' if name else "")
    return ApiError(403, "Forbidden", f"{what} is forbidden: {why}", _details(name, group, plural))


def not_found(plural: str, group: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _details(name, group, plural))


def method_not_allowed(message: str) -> ApiError:
    return ApiError(405, "MethodNotAllowed", message)


def already_exists(plural: str, group: str, name: str, *, deleting: bool) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, _details(name, group, plural))


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(name, group, plural))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(allowed: str) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {allowed}"
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, cause: tuple[str, str, str]) -> ApiError:
    """422 for one field: `cause` is (field, reason, message), e.g. ("metadata.name", "FieldValueInvalid", ...)."""
    field, reason, message = cause
    causes = [{"reason": reason, "message": message, "field": field}]
    words = f'{qualified(kind, group)} "{name}" is invalid: {field}: {message}'
    return ApiError(422, "Invalid", words, _details(name, group, kind) | {"causes": causes})


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", message)


def version_too_large(asked: int, current: int) -> ApiError:
    """504: the asked resourceVersion lies in the future; clients tell it by its cause."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
