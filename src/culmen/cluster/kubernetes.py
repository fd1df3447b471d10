"""Workers of a queue as Kubernetes Jobs, each with a Secret, through the official client.

Cluster and login are those of the user's kubeconfig.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from culmen.cluster.launchers import NothingStarted, WorkerLook, WorkerOrder
from culmen.core.errors import UserError, missing_extra
from culmen.core.json import JsonObject
from culmen.core.options import parse_amount

if TYPE_CHECKING:
    from kubernetes.client import BatchV1Api, CoreV1Api  # pyright: ignore[reportMissingImports]

T = TypeVar("T")

_SETTINGS = ("context", "namespace", "cpu", "memory")
_SECONDS = (5.0, 30.0)  # to connect, and to answer
_LEAVE_SECONDS = 45.0  # pods have 30 by default
_TRIES = 3
_LABEL = "culmen-worker"
_ROOT = "/etc/culmen"
_STUCK = ("ErrImage", "ImagePull", "InvalidImage", "CreateContainer", "RunContainer")
"""Beginnings of the reasons for which a container waits that do not pass by themselves."""
_RIGHTS = "create, get and delete jobs and secrets, list pods, and read their logs"


class _MissingError(UserError):
    """A thing that does not exist, or its namespace."""


class KubernetesLauncher:
    """Jobs of one image in a namespace; see `launchers.Launcher`."""

    def __init__(self, image: str, settings: Mapping[str, str]) -> None:
        if unknown := set(settings) - set(_SETTINGS):
            what = f"Kubernetes has no setting '{min(unknown)}'"
            raise UserError(what, where="--set", fix=f"it has {', '.join(_SETTINGS)}")
        self._image, self._settings = image, settings
        self._core, self._batch, context = _connect(settings.get("context", ""))
        usual = context["context"].get("namespace") or "default"
        self._namespace = settings.get("namespace") or usual
        self.place = f"kubernetes:{context['name']}/{self._namespace}"

    def start(self, label: str, order: WorkerOrder) -> None:
        """Create a Secret with the settings of the worker, and a Job that runs it."""
        values = {name: value.encode() for name, value in order.secrets.items()}
        if order.root:
            values["root.crt"] = order.root
        data = {name: base64.b64encode(value).decode() for name, value in values.items()}
        secret = {"metadata": _metadata(label), "type": "Opaque", "data": data}
        try:
            self._call(self._core.create_namespaced_secret, self._namespace, secret)
        except UserError as error:
            raise NothingStarted(error.what, where=error.where, fix=error.fix) from None
        job = {"metadata": _metadata(label), "spec": self._job_spec(label, order)}
        self._call(self._batch.create_namespaced_job, self._namespace, job)

    def _job_spec(self, label: str, order: WorkerOrder) -> JsonObject:
        sizes = {name: self._settings[name] for name in ("cpu", "memory") if name in self._settings}
        amounts = {name: f"{parse_amount(name, text, '--set'):g}" for name, text in sizes.items()}
        names = [{"name": name, "valueFrom": _secret_key(label, name)} for name in order.secrets]
        container: JsonObject = {
            "name": "worker",
            "image": self._image,
            "command": list(order.argv),
            "env": names,
            "resources": {"requests": amounts, "limits": amounts},
            "securityContext": {"allowPrivilegeEscalation": False},
        }
        pod: JsonObject = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,  # candidates run there
            "enableServiceLinks": False,
            "containers": [container],
        }
        if order.root:
            items = [{"key": "root.crt", "path": "root.crt"}]
            source = {"secretName": label, "items": items}
            pod["volumes"] = [{"name": "root", "secret": source}]
            container["volumeMounts"] = [{"name": "root", "mountPath": _ROOT, "readOnly": True}]
            names.append({"name": "PGSSLROOTCERT", "value": f"{_ROOT}/root.crt"})
        return {"template": {"metadata": {"labels": {_LABEL: label}}, "spec": pod}}

    def look(self, label: str) -> WorkerLook:
        """Look at the newest pod of a worker's Job."""
        pods = self._pods(label)
        if not pods:
            return WorkerLook(False, "its Job has no pod yet")
        pod = max(pods, key=lambda each: str(each["metadata"].get("creationTimestamp")))
        status: JsonObject = pod.get("status") or {}
        phase = str(status.get("phase"))
        for each in status.get("containerStatuses") or ():
            waiting: JsonObject = (each.get("state") or {}).get("waiting") or {}
            if reason := str(waiting.get("reason") or ""):
                words = f"{reason}: {waiting.get('message') or ''}".strip(": ")
                return WorkerLook(reason.startswith(_STUCK), words)
        if phase == "Pending":
            reasons = (each.get("message") for each in status.get("conditions") or ())
            return WorkerLook(False, next(filter(None, reasons), "its pod is pending"))
        place = (pod["metadata"]["name"], self._namespace)
        log = self._call(self._core.read_namespaced_pod_log, *place, tail_lines=20)
        return WorkerLook(phase in ("Failed", "Succeeded"), str(log).strip())

    def stop(self, label: str) -> None:
        """Delete a worker's Job, wait for its pods, and delete its Secret."""
        thing = (label, self._namespace)
        self._delete(self._batch.delete_namespaced_job, *thing, propagation_policy="Background")
        until = time.monotonic() + _LEAVE_SECONDS
        while self._pods(label):
            if time.monotonic() > until:
                raise TimeoutError(f"pods of {label} have not ended")
            time.sleep(0.5)
        self._delete(self._core.delete_namespaced_secret, *thing)

    def _delete(self, function: Callable[..., object], *words: str, **more: str) -> None:
        """Call a deletion; a thing that is gone already is as good."""
        with contextlib.suppress(_MissingError):
            self._call(function, *words, **more)

    def _pods(self, label: str) -> list[JsonObject]:
        list_pods, selector = self._core.list_namespaced_pod, f"{_LABEL}={label}"
        listed = self._call(list_pods, self._namespace, label_selector=selector)
        plain = self._core.api_client.sanitize_for_serialization(listed)
        return cast(JsonObject, plain)["items"]

    def _call(self, function: Callable[..., T], *words: object, **more: object) -> T:
        """The answer of the API; raises `UserError` for a refusal or none at all."""
        from kubernetes.client.exceptions import ApiException  # pyright: ignore[reportMissingImports]
        from urllib3.exceptions import HTTPError  # pyright: ignore[reportMissingImports]

        for left in reversed(range(_TRIES)):
            try:
                return function(*words, _request_timeout=_SECONDS, **more)
            except ApiException as error:
                reason, message = _read_refusal(error.body, error.reason)
                if not (error.status == 409 and reason == "Conflict" and left):
                    raise self._refusal(error.status or 0, message) from None
            except HTTPError as error:
                fix = "make this work: kubectl get jobs"
                what = f"the cluster does not answer: {str(error)[-300:]}"
                raise UserError(what, where=self.place, fix=fix) from None
        raise AssertionError("the last try returns or raises")

    def _refusal(self, status: int, message: str) -> UserError:
        fixes = {
            401: "log in again, until this works: kubectl get jobs",
            403: f"ask for the rights to {_RIGHTS} in namespace {self._namespace}",
            404: "name a namespace that exists: --set namespace=NAME",
            409: "stop the other one, or launch again: names are made anew",
        }
        fix = fixes.get(status, "correct that, and launch again")
        kind = _MissingError if status == 404 else UserError
        return kind(f"the cluster refuses ({status}): {message}", where=self.place, fix=fix)


def _connect(name: str) -> tuple[CoreV1Api, BatchV1Api, JsonObject]:
    """Two parts of the API of a cluster, and the context of this name in the user's kubeconfig."""
    try:
        from kubernetes import client, config  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise missing_extra("a launch on Kubernetes", "kubernetes", "kubernetes") from None
    file = os.environ.get("KUBECONFIG")
    try:
        listed = cast(
            object, config.list_kube_config_contexts(file)
        )  # the library types it wrongly
        contexts, active = cast(tuple[list[JsonObject], JsonObject], listed)
        api = config.new_client_from_config(file, name or None)
    except config.ConfigException as error:
        fix = "write a kubeconfig, or --set context=NAME: kubectl config get-contexts"
        raise UserError(f"no access to Kubernetes: {error}", where="kubeconfig", fix=fix) from None
    chosen = next((each for each in contexts if each["name"] == name), active)
    return client.CoreV1Api(api), client.BatchV1Api(api), chosen


def _metadata(label: str) -> JsonObject:
    return {"name": label, "labels": {_LABEL: label, "app.kubernetes.io/managed-by": "culmen"}}


def _secret_key(label: str, name: str) -> JsonObject:
    return {"secretKeyRef": {"name": label, "key": name}}


def _read_refusal(body: str | None, reason: str | None) -> tuple[str, str]:
    """Reason and message of a refusal by the API."""
    try:
        about: JsonObject = json.loads(body or "{}")
    except ValueError:
        about = {}
    return str(about.get("reason") or ""), str(about.get("message") or reason or body or "")
