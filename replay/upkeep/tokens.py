"""Names and their tokens, one function for each sort of name. Pure; `anonymity.py` says where they stand.

The same name has the same token wherever it stands in a file, and another one in a file with another salt.
"""

import hashlib
import hmac
import re
from typing import Final

from replay.capture import Header
from shared.objects import ObjectKey, is_registry_id
from shared.reduce import KSERVE_PREFIXES, REGISTRY_PREFIXES
from shared.subjects import escape

_DIGITS: Final = 12
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,60}")  # a reason, a mode: coined by a program
_PROTOCOL: Final = re.compile(r"(grpc-)?v[0-9]{1,2}|[0-9.]{1,12}")
_SHORT: Final = re.compile(r"true|false|[A-Z][A-Za-z]{0,30}|[0-9]{1,10}")
_SUBJECT_TOKENS: Final = 7
_PLACEHOLDER: Final = re.compile(r"(\{namespace\}|\{cluster\})")
_SEPARATORS: Final = re.compile(r"[-_./]*")
_CLUSTER_DOMAIN: Final = "cluster.local"
_FORMATS: Final = frozenset(
    (
        *("sklearn", "xgboost", "tensorflow", "pytorch", "triton", "onnx", "huggingface", "pmml", "lightgbm", "paddle"),
        *("mlflow", "tensorrt", "keras", "vLLM", "openvino_ir", "catboost", "custom"),
    )
)


class Tokens:
    """Tokens by a salt, which is a secret: with it a guessed name can be confirmed."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def of(self, sort: str, text: str) -> str:
        """Return `<sort>-<hex>`; nothing stays nothing."""
        return f"{sort}-{self.digits(sort, text)}" if text else ""

    def digits(self, sort: str, text: str, count: int = _DIGITS) -> str:
        return hmac.new(self._salt, f"{sort}\0{text}".encode(), hashlib.sha256).hexdigest()[:count]


class Names:
    """One function for each sort of name."""

    def __init__(self, tokens: Tokens, header: Header) -> None:
        self._tokens = tokens
        template = header.deciding.environment
        self.template = "".join(self._literal(part) for part in _PLACEHOLDER.split(template))
        self._environment = _environment_pattern(template, header.cluster)
        self._cluster = header.cluster

    def namespace(self, text: str) -> str:
        return self._tokens.of("ns", text)

    def name(self, text: str) -> str:
        return self._tokens.of("name", text)

    def runtime(self, text: str) -> str:
        return self._tokens.of("runtime", text)

    def cluster(self, text: str) -> str:
        return self._tokens.of("cluster", text)

    def text(self, text: str) -> str:
        return self._tokens.of("text", text)

    def cluster_id(self, text: str) -> str:
        return text if _UUID.fullmatch(text) else self._tokens.of("id", text)

    def digest(self, text: str) -> str:
        """Return a digest of the digest: by the first one a guess at names could be confirmed."""
        version, colon, hexadecimal = text.partition(":")
        return f"{version}:{self._tokens.digits('digest', hexadecimal, 64)}" if colon else text and self.text(text)

    def word(self, text: str) -> str:
        return text if _WORD.fullmatch(text) else self.text(text)

    def version(self, text: str) -> str:
        return text if _PROTOCOL.fullmatch(text) else self.text(text)

    def model_format(self, text: str) -> str:
        return text if text in _FORMATS else self._tokens.of("format", text)

    def flag(self, text: str) -> str:
        return text if _SHORT.fullmatch(text) else self.text(text)

    def registry_id(self, text: str) -> str:
        return text if is_registry_id(text) else self.text(text)

    def prefix(self, text: str) -> str:
        if text in REGISTRY_PREFIXES or text in KSERVE_PREFIXES:
            return text
        return f"{self._tokens.of('host', text.rstrip('/'))}.example/" if text else ""

    def key(self, text: str) -> str:
        """Return the key of a label of ours."""
        prefix, slash, name = text.rpartition("/")
        return self.prefix(prefix + slash) + name

    def uri(self, text: str) -> str:
        scheme, separator, rest = text.partition("://")
        return f"{scheme}{separator}{self._tokens.of('uri', rest)}" if separator else self._tokens.of("uri", text)

    def url(self, text: str) -> str:
        scheme, separator, rest = text.partition("://")
        return f"{scheme}://{self.address(rest)}" if separator else self.text(text)

    def address(self, text: str) -> str:
        """Return host, port and path as tokens; the port stays."""
        authority, slash, path = text.partition("/")
        path = path.rstrip("/")
        return self.host_and_port(authority) + (f"/{self._tokens.of('path', path)}" if path else slash)

    def host_and_port(self, text: str) -> str:
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit():
            host, colon, port = text, "", ""
        return f"{self.host(host)}{colon}{port}"

    def host(self, text: str) -> str:
        labels = text.lower().split(".")
        if len(labels) >= 3 and labels[2] == "svc":  # a Service: its name and namespace stand elsewhere, too
            domain = ".".join(labels[3:])
            found = f"{self.name(labels[0])}.{self.namespace(labels[1])}.svc"
            return f"{found}.{self.domain(domain)}" if domain else found
        return f"{self._tokens.of('host', text.lower())}.example" if text else ""

    def domain(self, text: str) -> str:
        return text if text == _CLUSTER_DOMAIN else f"{self._tokens.of('host', text)}.example"

    def registry(self, text: str) -> str:
        """Return the name of a registry: a Service's `namespace/name`, or an address."""
        if "://" in text:
            return self.url(text)
        namespace, slash, name = text.partition("/")
        return f"{self.namespace(namespace)}/{self.name(name)}" if slash else text

    def stream(self, text: str) -> str:
        prefix, _, kind = text.rpartition("_")
        return f"{self._subject_prefix(prefix.lower()).upper()}_{kind}" if prefix else ""

    def subject(self, text: str, key: ObjectKey) -> str:
        """Return the subject of an event whose key is `key` now."""
        parts = text.split(".")
        if len(parts) != _SUBJECT_TOKENS:
            return ""
        tail = (escape(key.namespace), escape(key.name))
        return ".".join((self._subject_prefix(parts[0]), self.cluster(self._cluster), *parts[2:5], *tail))

    def record_name(self, text: str, uid: str) -> str:
        name, slash, rest = text.partition("/")
        known, _, model = rest.partition("/")
        if slash and (known == uid or _UUID.fullmatch(known)) and (not model or is_registry_id(model)):
            return f"{self.name(name)}/{rest}"
        return self._tokens.of("record", text)

    def external_id(self, text: str, uid: str) -> str:
        sort, _, rest = text.partition(":")
        known, _, model = rest.partition("/")
        if sort == "kserve" and (known == uid or _UUID.fullmatch(known)) and is_registry_id(model):
            return text
        return self._tokens.of("id", text)

    def environment(self, text: str) -> str:
        match = self._environment.fullmatch(text)
        if match is None:
            return self._tokens.of("environment", text)
        namespace = match.groupdict().get("namespace", "")
        found = self.template.replace("{namespace}", self.namespace(namespace))
        return found.replace("{cluster}", self.cluster(self._cluster))

    def _subject_prefix(self, text: str) -> str:
        return text if text == "isvc" else self._tokens.of("prefix", text)

    def _literal(self, part: str) -> str:
        kept = _PLACEHOLDER.fullmatch(part) or _SEPARATORS.fullmatch(part)
        return part if kept else self.text(part)


def _environment_pattern(template: str, cluster: str) -> re.Pattern[str]:
    """Return what finds the namespace in the name of an environment."""
    seen = False
    parts = []
    for part in _PLACEHOLDER.split(template):
        if part == "{namespace}":
            parts.append("(?P=namespace)" if seen else "(?P<namespace>.+)")
            seen = True
        else:
            parts.append(re.escape(cluster if part == "{cluster}" else part))
    return re.compile("".join(parts), re.DOTALL)
