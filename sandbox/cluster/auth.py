"""Who may do what: static bearer tokens, and rules in the shape of RBAC. Pure.

Without any token configured everybody is `admin`: the sandbox is a tool on one's own machine.
"""

from dataclasses import dataclass

from sandbox.cluster.status import ApiError, forbidden, unauthorized

ANY = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission. `resources` are written `inferenceservices.serving.kserve.io` or `configmaps`, with `/status`."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    namespaces: tuple[str, ...] = (ANY,)
    names: tuple[str, ...] = (ANY,)

    def allows(self, action: "Action") -> bool:
        pairs = (
            (self.verbs, action.verb),
            (self.resources, action.resource),
            (self.namespaces, action.namespace),
            (self.names, action.name),
        )
        return all(ANY in allowed or asked in allowed for allowed, asked in pairs)


@dataclass(frozen=True, slots=True)
class Action:
    """What a request wants. `resource` includes the subresource, after a slash."""

    verb: str
    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class User:
    name: str
    rules: tuple[Rule, ...]


ADMIN = User("admin", (Rule((ANY,), (ANY,)),))


def authenticate(header: str | None, tokens: dict[str, User]) -> User:
    """Return who sends `Authorization: <header>`; raises ApiError 401 for a missing or unknown token."""
    if not tokens:
        return ADMIN
    scheme, _, token = (header or "").partition(" ")
    user = tokens.get(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise unauthorized()
    return user


def authorize(user: User, action: Action) -> None:
    """Return if a rule allows the action; raises ApiError 403 otherwise."""
    if any(rule.allows(action) for rule in user.rules):
        return
    raise _denied(user, action)


def _denied(user: User, action: Action) -> ApiError:
    resource, _, sub = action.resource.partition("/")
    plural, _, group = resource.partition(".")
    where = f' in the namespace "{action.namespace}"' if action.namespace else " at the cluster scope"
    what = f"{plural}/{sub}" if sub else plural
    why = f'User "{user.name}" cannot {action.verb} resource "{what}" in API group "{group}"{where}'
    return forbidden(plural, group, action.name, why)
