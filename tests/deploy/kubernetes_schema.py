"""What the manifests of deploy/kubernetes may say: the fields that they use, of API apps/v1 and core/v1, and no others.

A field that Kubernetes does not know it drops or refuses, and a wrong type it refuses: both show only on a cluster. A name
is of a type: a function that takes a value and returns what is wrong with it, or "".
"""

import re


def text(value):
    return "" if isinstance(value, str) and value else "is no text"


def flag(value):
    return "" if isinstance(value, bool) else "is neither true nor false"


def number(value):
    return "" if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else "is no number"


def quantity(value):
    ok = isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?(m|Ki|Mi|Gi)?", value)
    return "" if ok else "is no quantity"


def path(value):
    return "" if isinstance(value, str) and value.startswith("/") else "is no absolute path"


def label(value):
    ok = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value)
    return "" if ok else "is no label"


def name(value):
    ok = isinstance(value, str) and re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", value)
    return "" if ok else "is no name"


def one_of(*words):
    return lambda value: "" if value in words else "is none of " + ", ".join(words)


class Of(dict):
    """A mapping with these fields; those in `needs` must be there, and of those in `one` exactly one."""

    def __init__(self, fields, needs=(), one=()):
        super().__init__(fields)
        self.needs, self.one = needs, one


class Map(dict):
    """Any keys, values of one type: {None: type}."""


LABELS = Map({None: label})
METADATA = Of({"name": name, "namespace": name, "labels": LABELS}, needs=["name"])
SECURITY = Of({
    "runAsUser": number,
    "runAsNonRoot": flag,
    "allowPrivilegeEscalation": flag,
    "readOnlyRootFilesystem": flag,
    "capabilities": Of({"drop": [one_of("ALL")], "add": [one_of("IPC_LOCK")]}, needs=["drop"]),
    "seccompProfile": Of({"type": one_of("RuntimeDefault")}, needs=["type"]),
}, needs=["allowPrivilegeEscalation", "capabilities", "seccompProfile"])
CONTAINER = Of({
    "name": name,
    "image": text,
    "command": [text],
    "args": [text],
    "securityContext": SECURITY,
    "resources": Of({"requests": Map({None: quantity}), "limits": Map({None: quantity})}),
    "volumeMounts": [Of({"name": name, "mountPath": path, "readOnly": flag}, needs=["name", "mountPath"])],
    "readinessProbe": Of(
        {"exec": Of({"command": [text]}, needs=["command"]), "periodSeconds": number, "timeoutSeconds": number},
        needs=["exec"]),
}, needs=["name", "image", "securityContext"])
VOLUME = Of({
    "name": name,
    "hostPath": Of({"path": path, "type": one_of("Directory", "DirectoryOrCreate")}, needs=["path"]),
    "emptyDir": Of({"medium": one_of("Memory")}),
    "configMap": Of({"name": name, "optional": flag}, needs=["name"]),
}, needs=["name"], one=["hostPath", "emptyDir", "configMap"])
POD = Of({
    "nodeSelector": LABELS,
    "priorityClassName": name,
    "automountServiceAccountToken": flag,
    "enableServiceLinks": flag,
    "hostNetwork": flag,
    "hostUsers": flag,
    "terminationGracePeriodSeconds": number,
    "containers": [CONTAINER],
    "volumes": [VOLUME],
}, needs=["containers"])
KINDS = {
    ("v1", "Pod"): Of({"apiVersion": text, "kind": text, "metadata": METADATA, "spec": POD}, needs=["metadata", "spec"]),
    ("apps/v1", "DaemonSet"): Of({
        "apiVersion": text,
        "kind": text,
        "metadata": METADATA,
        "spec": Of({
            "selector": Of({"matchLabels": LABELS}, needs=["matchLabels"]),
            "updateStrategy": Of({"type": one_of("OnDelete", "RollingUpdate")}, needs=["type"]),
            "template": Of({"metadata": Of({"labels": LABELS}, needs=["labels"]), "spec": POD}, needs=["metadata", "spec"]),
        }, needs=["selector", "template"]),
    }, needs=["metadata", "spec"]),
}


def problems(value, schema, at):
    """What is wrong with a value, each as a line."""
    if callable(schema):
        wrong = schema(value)
        return [f"{at}: {value!r} {wrong}"] if wrong else []
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{at}: is no list"]
        return [line for i, each in enumerate(value) for line in problems(each, schema[0], f"{at}[{i}]")]
    if not isinstance(value, dict):
        return [f"{at}: is no mapping"]
    if isinstance(schema, Map):
        return [line for key, each in value.items() for line in problems(each, schema[None], f"{at}.{key}")]
    lines = [f"{at}: there is no field {key}" for key in value if key not in schema]
    lines += [f"{at}: {key} is missing" for key in schema.needs if key not in value]
    if schema.one and sum(key in value for key in schema.one) != 1:
        lines.append(f"{at}: one of {', '.join(schema.one)}")
    for key, each in value.items():
        if key in schema:
            lines += problems(each, schema[key], f"{at}.{key}")
    return lines
