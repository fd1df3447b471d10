"""A small API server on the loopback, for clients of Kubernetes: it keeps Secrets and Jobs of one namespace.

The command of a Job runs as a process of this machine. No cluster: no scheduler, no nodes, no images, no retries.

The image says what becomes of a pod: `missing...` waits for its image, `pending...` for a node, any other one runs.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN, NAMESPACE = "kube-token", "lab"
_THING = re.compile(r"/(?:api/v1|apis/batch/v1)/namespaces/([^/]+)/(secrets|jobs|pods)(?:/([^/]+))?(/log)?")
REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "AlreadyExists"}


class KubeServer:
    """`things` are what is stored, by kind and name; `refusals` the answers to come, by method and kind."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.things: dict[tuple[str, str], Any] = {}
        self.refusals: dict[tuple[str, str], list[tuple[int, str]]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        server = self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"kube": self}))
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.kubeconfig = place / "kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "small", "cluster": cluster}], "users": [{"name": "me", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "small", "user": "me", "namespace": NAMESPACE}}],
        }  # fmt: skip
        self.kubeconfig.write_text(json.dumps(config))

    def start_pod(self, name: str, spec: dict[str, Any]) -> None:
        """Run the command of a Job's one container, with its variables and files."""
        container, mounted = spec["containers"][0], tempfile.mkdtemp(dir=self.place)
        variables = dict[str, str]()
        for each in container["env"]:
            asked = each.get("valueFrom", {}).get("secretKeyRef")
            variables[each["name"]] = self._secret(asked["name"], asked["key"]) if asked else each["value"]
        for volume, mount in zip(spec.get("volumes", ()), container.get("volumeMounts", ())):
            for item in volume["secret"]["items"]:
                (Path(mounted) / item["path"]).write_text(self._secret(volume["secret"]["secretName"], item["key"]))
            variables = {key: value.replace(mount["mountPath"], mounted) for key, value in variables.items()}
        with (self.place / f"{name}.log").open("wb") as log:
            environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
            self.processes[name] = subprocess.Popen(
                container["command"], env={**environment, **variables}, stdout=log, stderr=log, cwd="/"
            )

    def _secret(self, name: str, key: str) -> str:
        return base64.b64decode(self.things["secrets", name]["data"][key]).decode()

    def describe_pod(self, name: str) -> dict[str, Any]:
        job = self.things["jobs", name]
        image = job["spec"]["template"]["spec"]["containers"][0]["image"]
        metadata = {"name": f"{name}-x", "labels": job["spec"]["template"]["metadata"]["labels"]}
        if image.startswith("missing"):
            waiting = {"reason": "ErrImagePull", "message": f"no image {image}"}
            states = [{"name": "worker", "image": image, "imageID": "", "ready": False, "restartCount": 0}]
            status = {"phase": "Pending", "containerStatuses": [{**states[0], "state": {"waiting": waiting}}]}
        elif image.startswith("pending"):
            reason = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
            status = {"phase": "Pending", "conditions": [reason]}
        else:
            code = self.processes[name].poll()
            status = {"phase": "Running" if code is None else "Failed" if code else "Succeeded"}
        return {"metadata": metadata, "spec": {"containers": []}, "status": status}

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        for process in self.processes.values():
            process.kill()
            process.wait()


class _Handler(BaseHTTPRequestHandler):
    kube: KubeServer

    def _answer(self, document: Any, status: int = 200) -> None:
        data = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(document, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: int, message: str, reason: str = "") -> None:
        about = {"kind": "Status", "reason": reason or REASONS.get(status, ""), "message": message, "code": status}
        self._answer(about, status)

    def _serve(self) -> None:
        url = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        found = _THING.fullmatch(url.path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._refuse(401, "Unauthorized")
        if found is None or found[1] != NAMESPACE:
            return self._refuse(404, f"no such place: {url.path}")
        kind, name = found[2], found[3] or body.get("metadata", {}).get("name", "")
        if waiting := self.kube.refusals.get((self.command, kind)):
            status, reason = waiting.pop(0)
            return self._refuse(status, f"{kind} is refused: {reason}", reason)
        if kind == "pods":
            return self._serve_pods(name, bool(found[4]), parse_qs(url.query))
        self._serve_thing(kind, name, body)

    def _serve_pods(self, name: str, is_log: bool, query: dict[str, list[str]]) -> None:
        if is_log:
            return self._answer((self.kube.place / f"{name.removesuffix('-x')}.log").read_text())
        wanted = query["labelSelector"][0].partition("=")[2]
        pods = [self.kube.describe_pod(name) for kind, name in self.kube.things if (kind, name) == ("jobs", wanted)]
        self._answer({"kind": "PodList", "apiVersion": "v1", "items": pods})

    def _serve_thing(self, kind: str, name: str, body: dict[str, Any]) -> None:
        if self.command == "POST":
            if (kind, name) in self.kube.things:
                return self._refuse(409, f'{kind} "{name}" already exists')
            self.kube.things[kind, name] = body
            spec = body.get("spec", {}).get("template", {}).get("spec")
            if spec and not spec["containers"][0]["image"].startswith(("missing", "pending")):
                self.kube.start_pod(name, spec)
            return self._answer(body, 201)
        if (kind, name) not in self.kube.things:
            return self._refuse(404, f'{kind} "{name}" not found')
        if kind == "jobs" and name in self.kube.processes:
            self.kube.processes[name].terminate()
            self.kube.processes[name].wait(60)
        self._answer(self.kube.things.pop((kind, name)))

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def kube_server() -> Iterator[KubeServer]:
    with tempfile.TemporaryDirectory(prefix="culmen-kube-") as place:
        running = KubeServer(Path(place))
        try:
            yield running
        finally:
            running.close()
