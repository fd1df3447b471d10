"""Workers over TLS, in containers, and as Kubernetes Jobs by an API server of the tests' own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from culmen.cluster.launch import PASSWORD
from culmen.cluster.queue_link import new_token
from tests import postgres
from tests.cluster.kube_server import NAMESPACE, KubeServer, kube_server
from tests.cluster.launching import WORKER_PASSWORD, LaunchQueue, launch_queue, processes
from tests.evaluate.container import image

pytestmark = pytest.mark.slow
CULMEN = str(Path(sys.executable).with_name("culmen"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl is not installed")
    return postgres.make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_server(certificates: Path) -> Iterator[Any]:
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    if postgres.programs() is None:
        pytest.skip("PostgreSQL's server is not installed")
    with postgres.server(tls=certificates) as running:
        yield running


@pytest.fixture
def queue(
    tls_server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[LaunchQueue]:
    monkeypatch.setenv(PASSWORD, WORKER_PASSWORD)
    with launch_queue(tls_server, capsys) as made:
        yield made


def start_worker(queue: LaunchQueue, url: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "CULMEN_WORKER_TOKEN": new_token(queue.address, "one", None, False)}
    environment["PGPASSWORD"] = WORKER_PASSWORD
    words = [CULMEN, "worker", url, "--slots", "2"]
    return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.postgres
def test_a_worker_over_tls_with_the_right_root_certificate_evaluates(
    queue: LaunchQueue, certificates: Path, tls_server: Any, tmp_path: Path
):
    worker = start_worker(queue, queue.tls_url(certificates / "root.crt"))
    try:
        assert queue.scores(tmp_path / "task", 4) == [-float(n) for n in range(4)]
        with tls_server.connect() as connection:
            query = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'culmen_worker'"
            assert set(connection.execute(query).fetchall()) == {(True,)}
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("root", "host", "words"),
    [
        ("other.crt", "localhost", "certificate verify failed"),
        ("root.crt", "127.0.0.1", 'does not match host name "127.0.0.1"'),
        ("none.crt", "localhost", "does not exist"),
    ],
)
def test_a_worker_refuses_a_server_that_its_certificate_does_not_prove(
    queue: LaunchQueue, certificates: Path, root: str, host: str, words: str
):
    """It ends, and sends neither token nor password."""
    worker = start_worker(queue, queue.tls_url(certificates / root, host))
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 2 and words in errors and "sslrootcert=FILE" in errors, errors
    assert queue.worker("one")["processes"] == 0


@pytest.fixture(scope="module")
def worker_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", image.path_of_podman(tmp_path_factory.mktemp("bin")))
        if why := image.made():
            pytest.skip(f"no container can be run here: {why}")
        yield image.made_with_culmen(tmp_path_factory.mktemp("context"))
        subprocess.run(["podman", "rmi", "--force", image.WITH_CULMEN], capture_output=True, check=False)


def containers() -> list[str]:
    listed = subprocess.run(["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True)
    return listed.stdout.split()


@pytest.mark.container
def test_a_container_works_over_tls_and_is_deleted(
    queue: LaunchQueue, certificates: Path, worker_image: str, tmp_path: Path
):
    """The root certificate travels with the launch; no secret is in a list of processes or in podman's record."""
    options = ("--worker-url", queue.tls_url(certificates / "root.crt"), "--name", "box")
    sizes = ("--set", "network=host", "--set", "memory=2GB", "--set", "cpu=2")
    (worker,) = queue.launch("--on", f"container:{worker_image}", *options, *sizes)
    assert worker["state"] == "joined" and worker["label"] in containers(), worker
    assert queue.scores(tmp_path / "task", 4) == [-float(n) for n in range(4)]
    record = subprocess.run(["podman", "inspect", worker["label"]], capture_output=True, text=True, check=True).stdout
    assert processes(WORKER_PASSWORD) == [] and WORKER_PASSWORD not in record and "TOKEN" not in record
    assert queue.stop() == ["stopped"] and queue.stop() == [] and worker["label"] not in containers()


@pytest.mark.container
def test_containers_that_cannot_work_are_named_and_leave_nothing(queue: LaunchQueue, worker_image: str):
    (missing,) = queue.launch("--on", "container:localhost/nothing:1", code=1)
    assert "localhost/nothing:1 is not on this machine" in missing["words"]
    assert "pull localhost/nothing:1" in missing["fix"]
    (bare,) = queue.launch("--on", f"container:{image.IMAGE}", code=1)
    assert "there is no program 'culmen'" in bare["words"]
    assert not {missing["label"], bare["label"]} & set(containers()) and queue.stop() == []


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    pytest.importorskip("kubernetes", reason="the extra 'kubernetes' is not installed")
    with kube_server() as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        yield running


def test_jobs_of_kubernetes_work_and_are_deleted(
    queue: LaunchQueue, certificates: Path, kube: KubeServer, tmp_path: Path
):
    """Token, password and root certificate are in a Secret alone, which goes with its Job."""
    options = ("--worker-url", queue.tls_url(certificates / "root.crt"), "--set", "memory=2GB", "--set", "cpu=2")
    workers = queue.launch("--on", "kubernetes:worker:1", "--count", "2", *options)
    assert [(each["name"], each["state"]) for each in workers] == [("lab-1", "joined"), ("lab-2", "joined")]
    assert queue.worker("lab-1")["place"] == "kubernetes:here/lab"
    assert queue.scores(tmp_path / "task", 4) == [-float(n) for n in range(4)]
    job = kube.things["jobs", workers[0]["label"]]
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "2e+09", "cpu": "2"}
    assert WORKER_PASSWORD not in str(job) and processes(WORKER_PASSWORD) == []
    assert queue.stop() == ["stopped", "stopped"] and queue.stop() == [] and kube.things == {}


@pytest.mark.parametrize(
    ("method", "kind", "answers", "words", "fix"),
    [
        ("POST", "secrets", [(403, "Forbidden")], "refuses (403): secrets is refused", "ask for the rights to create"),
        ("POST", "jobs", [(403, "Forbidden")], "refuses (403): jobs is refused", "in namespace lab"),
        ("POST", "jobs", [(409, "AlreadyExists")], "refuses (409)", "names are made anew"),
        ("POST", "secrets", [(401, "Unauthorized")], "refuses (401)", "kubectl get jobs"),
    ],
)
def test_what_the_api_server_refuses_is_named(
    queue: LaunchQueue, kube: KubeServer, method: str, kind: str, answers: list[tuple[int, str]], words: str, fix: str
):
    kube.refusals[method, kind] = answers
    (failed,) = queue.launch("--on", "kubernetes:worker:1", "--count", "2", code=1)
    assert words in failed["words"] and fix in failed["fix"], failed
    assert kube.things == {} and queue.stop() == []


def test_kubernetes_is_asked_again_where_that_helps(queue: LaunchQueue, kube: KubeServer, certificates: Path):
    """A quota that changes under a request is tried again; a stop that was refused is repeated by the next one."""
    kube.refusals["POST", "jobs"] = [(409, "Conflict"), (409, "Conflict")]
    url = ("--worker-url", queue.tls_url(certificates / "root.crt"))
    (worker,) = queue.launch("--on", "kubernetes:worker:1", *url)
    assert worker["state"] == "joined"
    kube.refusals["DELETE", "secrets"] = [(403, "Forbidden")]
    assert queue.stop(code=1) == ["failed"] and ("secrets", worker["label"]) in kube.things
    assert queue.stop() == ["stopped"] and kube.things == {}


def test_pods_that_do_not_begin_are_named(queue: LaunchQueue, kube: KubeServer, certificates: Path):
    """A missing image ends a launch; a pod that waits for a node stays, with the scheduler's words."""
    (failed,) = queue.launch("--on", "kubernetes:missing:1", code=1)
    assert "ErrImagePull: no image missing:1" in failed["words"] and kube.things == {}
    wrong = ("--worker-url", queue.tls_url(certificates / "other.crt"))
    (dead,) = queue.launch("--on", "kubernetes:worker:1", *wrong, code=1)
    assert "certificate verify failed" in dead["words"] and kube.things == {}
    (waiting,) = queue.launch("--on", "kubernetes:pending:1", "--wait", "0.5")
    assert waiting["state"] == "starting" and "nodes are available" in waiting["words"]
    assert queue.worker("lab-1")["place"] == f"kubernetes:here/{NAMESPACE}"
    assert queue.stop() == ["stopped"] and kube.things == {}


def test_without_a_cluster_or_a_kubeconfig(
    queue: LaunchQueue, kube: KubeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def error(*words: str) -> str:
        return str(queue.call("launch", "--on", "kubernetes:worker:1", *words, code=2)["error"])

    assert "kubectl config get-contexts" in error("--set", "context=nowhere")
    assert "has no setting 'network'" in error("--set", "network=host")
    kube.close()
    (failed,) = queue.launch("--on", "kubernetes:worker:1", code=1)
    assert "the cluster does not answer" in failed["words"]
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "no access to Kubernetes" in error()
