#!/usr/bin/python3 -B
"""The manifests of deploy/kubernetes: fields and types that Kubernetes knows, names that are there, and the rights that
README tells of and no others. Each fault that is put into them is found."""

import copy
import re
import sys

import yaml

import kubernetes_schema as schema


class Strict(yaml.SafeLoader):
    """A key that is given twice is an error: to SafeLoader the last one wins."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, "a key twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load(text):
    return yaml.load(text, Strict)


def pod_of(document):
    return document["spec"]["template"]["spec"] if document["kind"] == "DaemonSet" else document["spec"]


def check_rights(pod):
    lines = []
    for container in pod["containers"]:
        security, daemon = container["securityContext"], container["name"] == "mrd"
        if security["allowPrivilegeEscalation"] or security["capabilities"]["drop"] != ["ALL"]:
            lines.append(f"{container['name']}: more rights than it needs")
        if (security["capabilities"].get("add", []) == ["IPC_LOCK"]) != daemon:
            lines.append(f"{container['name']}: IPC_LOCK is mrd's, and mrd's alone")
        devices = [key for key in container["resources"].get("limits", {}) if key.startswith("rdma/")]
        if bool(devices) != daemon:
            lines.append(f"{container['name']}: devices are mrd's, and mrd's alone")
        mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        if mounts.get("/run/mrd") != (not daemon) or ("/run" in mounts) != daemon or "/run/mrd-admin" in mounts:
            lines.append(f"{container['name']}: /run/mrd is mrd's to write, /run mrd's alone, which makes /run/mrd-admin")
    if not pod.get("hostNetwork") or not pod.get("hostUsers"):
        lines.append("mrd shares the host's network and user namespaces")
    return lines


def check(document, version):
    kind = (document.get("apiVersion"), document.get("kind")) if isinstance(document, dict) else None
    if kind not in schema.KINDS:
        return [f"no such kind: {kind}"]
    lines = schema.problems(document, schema.KINDS[kind], document["kind"])
    if lines:
        return lines
    pod = pod_of(document)
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    mounted = [mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]]
    if len(volumes) != len(set(volumes)) or set(volumes) != set(mounted):
        lines.append(f"volumes {volumes}, mounted {mounted}")
    if document["kind"] == "DaemonSet":
        spec = document["spec"]
        if not spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items():
            lines.append("the selector does not match the template's labels")
    lines += [f"image {each['image']}, version {version}" for each in pod["containers"] if each["image"] != "mrd:" + version]
    return lines + check_rights(pod)


def places(value, path=()):
    """Each mapping in it that has fields of its own, by its path."""
    if isinstance(value, dict):
        yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []:
        yield from places(each, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


FREE = {"labels", "matchLabels", "nodeSelector", "requests", "limits"}  # Keys there are anybody's.


def faults(document):
    """Copies of the document with a fault each, and what it is."""
    for path in places(document):
        for key in at(document, path):
            broken = copy.deepcopy(document)
            at(broken, path)[key] = 1.5
            yield broken, f"{path}.{key}: 1.5"
        if path and path[-1] in FREE:
            continue
        broken = copy.deepcopy(document)
        at(broken, path)["nosuchfield"] = "x"
        yield broken, f"{path}.nosuchfield"
    for change in (
            lambda pod: pod["volumes"].pop(),
            lambda pod: pod.update(hostNetwork=False),
            lambda pod: pod.pop("hostUsers"),
            lambda pod: pod["volumes"][0].update(emptyDir={}, hostPath={"path": "/x"}),
            lambda pod: pod["containers"][0]["volumeMounts"][0].update(mountPath="/run/mrd-admin"),
            lambda pod: [mount.update(readOnly=not mount.get("readOnly", False)) for each in pod["containers"]
                         for mount in each["volumeMounts"] if mount["mountPath"] == "/run/mrd"],
            lambda pod: pod["containers"][0].update(image="mrd:0.0.0"),
            lambda pod: pod["containers"][0]["securityContext"].pop("capabilities"),
            lambda pod: pod["containers"][0]["securityContext"]["capabilities"].pop("add"),
            lambda pod: pod["containers"][0]["securityContext"].update(privileged=True)):
        broken = copy.deepcopy(document)
        change(pod_of(broken))
        yield broken, str(change.__code__.co_firstlineno)


def main(version_header, *manifests):
    with open(version_header, encoding="utf-8") as file:
        version = re.search(r'kVersion\[\] = "(.*)"', file.read())[1]
    failures, found = [], 0
    try:
        load("a: 1\na: 2\n")
        failures.append("a key twice is not found")
    except yaml.YAMLError:
        pass
    for manifest in manifests:
        with open(manifest, encoding="utf-8") as file:
            document = load(file.read())
        failures += [f"{manifest}: {line}" for line in check(document, version)]
        for broken, what in faults(document):
            found += 1
            if not check(broken, version):
                failures.append(f"{manifest}: not found: {what}")
    if found < 100:
        failures.append(f"only {found} faults were tried")
    print("\n".join("FAILED: " + line for line in failures) or f"manifests: good; {found} faults were found")
    return 1 if failures else 0


sys.exit(main(*sys.argv[1:]))
