"""The fork-server: a warm single-threaded process with one confined child per evaluation.

It runs only trusted code, holds no secret, starts inside bubblewrap at level namespaces, and has
four duties: fork, kill at the deadline or above the memory limit, reap, report. It ends, with all
its descendants, when its control socket closes, that is when the orchestrator dies for any reason.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from culmen.core.json import JsonObject
from culmen.jail import disk, kernel, procfs, runner, share, wire
from culmen.jail.confine import (
    CHANNEL,
    REMOVE,
    ChildConfinement,
    ForkRequest,
    JailPolicy,
    arrange_descriptors,
)
from culmen.jail.deputy import Deputy
from culmen.jail.tree import ChildGroups, TreeWatch

JAIL_FAILED = 121  # exit status of a child that could not confine itself
WATCH_SECONDS = 0.1
_LEAST_WATCH_SECONDS = 0.004
# Longest rest after a look. Otherwise the rest is as long as the look was, so that watching takes
# half of the time; but a long count of stopped processes takes a tenth of a second, and in a rest
# of that length two threads take 400 MB.
_LONGEST_REST_SECONDS = 0.01
_FEW_FILES = 16  # are removed by the loop itself
_CORES = os.cpu_count() or 1
_KB_PER_SECOND = 4 << 20  # that one thread can take from the kernel
Child = Callable[[JailPolicy, ForkRequest, int, int, int, int], NoReturn]


@dataclass
class _Running:
    job: ForkRequest
    deadline: float
    tree: TreeWatch
    end: str = "exit"
    handover: socket.socket | None = None
    deputy: Deputy | None = None
    free: disk.FreeSpace | None = None
    group: str = ""
    kills: int = 0
    next_search: float = 0.0
    is_held: bool = False  # to its share of processor time

    def question_descriptor(self) -> int:
        """The descriptor on which the child's next question arrives, -1 if none can come."""
        return (
            self.handover.fileno()
            if self.handover is not None
            else self.deputy.listener
            if self.deputy is not None
            else -1
        )

    def serve_question(self) -> None:
        """Take over the child's listener, or answer a question of one of its processes."""
        if self.handover is not None:
            with self.handover:
                fds = socket.recv_fds(self.handover, 1, 1)[1]
            self.handover = None
            self.deputy = Deputy(fds[0], self.job.work) if fds else None
        elif self.deputy is not None:
            self.deputy.answer_syscall()

    def exceeds_files(self, pid: int) -> bool:
        """True if the child's files take too much space; a search is rare, for it may take long."""
        files_mb, now = self.job.files_mb, time.monotonic()
        if self.free is None or now < self.next_search:
            return False
        if not self.free.has_lost(files_mb << 20, disk.file_limit(files_mb)):
            return False
        over = disk.is_overfull(self.job.work, procfs.tree_pids(pid), files_mb)
        self.next_search = now + 10 * (time.monotonic() - now)
        return over

    def close_channels(self) -> None:
        """Close the channels of questions; the child can ask no further ones."""
        if self.handover is not None:
            self.handover.close()
        if self.deputy is not None:
            self.deputy.close()
        self.handover = self.deputy = None


class Zygote:
    """Serves the control socket until it closes. Messages are JSON, one per packet."""

    def __init__(
        self,
        control: socket.socket,
        policy: JailPolicy,
        child: Child,
        confinement: ChildConfinement | None = None,
    ) -> None:
        self.control, self.policy, self.child = control, policy, child
        self.confinement = confinement
        self.running: dict[int, _Running] = {}
        self.helpers: set[int] = set()
        self.groups = ChildGroups(policy.groups)
        self.next_watch = 0.0
        self.namespace = os.pidfd_open(os.getpid()) if policy.level == "namespaces" else -1
        self.alarm, self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Run the loop."""
        while True:
            poll = select.poll()
            for fd in (
                self.control.fileno(),
                self.alarm,
                *(r.question_descriptor() for r in self.running.values()),
            ):
                if fd >= 0:
                    poll.register(fd, select.POLLIN)
            ready = dict(poll.poll(self._poll_timeout_ms()))
            if self.alarm in ready:
                os.read(self.alarm, wire.PACKET_BYTES)
            self._serve_questions(ready)
            if self.control.fileno() in ready and not self._obey_message():
                return self._end_all_children()
            self._reap_children()
            self._enforce_child_limits()

    def _serve_questions(self, ready: dict[int, int]) -> None:
        for running in self.running.values():
            state = ready.get(running.question_descriptor(), 0)
            if state & select.POLLIN:
                running.serve_question()
            elif state & select.POLLHUP:  # POLLERR alone means that a signal interrupted the check
                running.close_channels()  # all processes that could ask have ended

    def _poll_timeout_ms(self) -> float | None:
        """Milliseconds until the next deadline or check."""
        if not self.running:
            return None
        now = time.monotonic()
        due = min(self.next_watch, *(r.deadline for r in self.running.values()))
        return max(0.0, due - now) * 1000 + 1

    def _obey_message(self) -> bool:
        """Obey one message from the orchestrator; False if it has gone."""
        data, fds, _, _ = socket.recv_fds(self.control, wire.PACKET_BYTES, 3)
        try:
            if not data:
                return False
            message = json.loads(data)
            if message["op"] == "run":
                self._fork_child(ForkRequest(**message["job"]), *fds)
            else:
                self._kill_child(message["id"], "killed")
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork_child(self, job: ForkRequest, channel: int, log: int, line: int = -1) -> None:
        try:
            if self.policy.level == "namespaces":
                # the next fork becomes process 1 of a fresh namespace, so one fork suffices and its
                # end ends all
                kernel.setns(self.namespace, kernel.CLONE_NEWPID)
                kernel.unshare(kernel.CLONE_NEWPID)
            elif self.policy.scratch:
                os.mkdir(job.work, 0o700)
                if self.policy.switch == "uid":
                    os.chown(
                        job.work, self.policy.first_uid + job.slot, self.policy.first_uid + job.slot
                    )
            group = self.groups.take(self._group_kb(job), job.processes)
            ours, theirs = (
                socket.socketpair() if self.policy.level == "restricted" else (None, None)
            )
            if not self.policy.switch:
                procfs.processes_of(os.getuid(), time.monotonic() // 1)  # children have this count
            if self.confinement is not None:
                self.confinement.prepare(job, is_paired=line >= 0)
            pid = os.fork()
        except OSError as error:
            return self._send_report({"id": job.id, "end": "jail_error", "text": str(error)})
        if pid == 0:
            self._become_child(
                job, group, channel, log, line, theirs.fileno() if theirs is not None else -1
            )
        if theirs is not None:
            theirs.close()
        if self.confinement is not None:
            self.confinement.forget()
        now = time.monotonic()
        free = disk.FreeSpace.of(job.work) if ours is not None else None
        self.running[pid] = _Running(
            job,
            now + job.seconds,
            TreeWatch(pid),
            handover=ours,
            free=free,
            group=group,
            kills=self.groups.kills(group),
        )
        first = now + _safe_pause(self.limit_kb(pid), _CORES)
        self.next_watch = first if len(self.running) == 1 else min(first, self.next_watch)

    def _become_child(
        self, job: ForkRequest, group: str, channel: int, log: int, line: int, handover: int
    ) -> NoReturn:
        """Become the child: confine, then run; never return into the fork-server's loop."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.groups.enter(group)
            share.usual_priority()
            self.child(self.policy, job, channel, log, line, handover)
        finally:
            os._exit(1)

    def close_descriptors(self) -> None:
        """Close this server's own descriptors in a child that keeps others of its process."""
        self.control.close()
        os.close(self.alarm)
        os.close(self._wakeup)

    def _kill_child(self, number: int, why: str) -> None:
        for pid, running in self.running.items():
            if running.job.id == number:
                running.end = why if running.end == "exit" else running.end
                if running.is_held and os.geteuid() == 0:
                    share.restore_share(procfs.tree_pids(pid))
                if why == "memory":  # its descendants would take more while it ends
                    procfs.kill_tree(pid)
                else:
                    os.kill(pid, signal.SIGKILL)

    def _reap_children(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.helpers.discard(pid)
            running = self.running.pop(pid, None)
            if running is not None:
                self._finish_child(
                    running, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss
                )

    def _finish_child(self, running: _Running, status: int, cpu: float, peak_kb: int) -> None:
        running.close_channels()
        if running.end == "exit" and self.groups.kills(running.group) > running.kills:
            running.end = "memory"
        self.groups.give_back(running.group)
        if self.policy.level != "namespaces":
            self._kill_orphans()
            if self.policy.scratch:
                self._remove_folder(running.job.work)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:  # it ended by itself before the signal arrived
            running.end = "exit"
        self._send_report(
            {"id": running.job.id, "end": running.end, "code": code, "cpu": cpu, "peak_kb": peak_kb}
        )

    def _enforce_child_limits(self) -> None:
        now = time.monotonic()
        for running in list(self.running.values()):
            if now >= running.deadline:
                self._kill_child(running.job.id, "timeout")
        if self.running and now >= self.next_watch:
            pause = min(self._check_child(*each) for each in list(self.running.items()))
            looked = time.monotonic()
            self.next_watch = looked + max(pause, min(looked - now, _LONGEST_REST_SECONDS))
            if self.policy.level != "namespaces":
                self._kill_orphans()

    def _check_child(self, pid: int, running: _Running) -> float:
        """Kill a child above its limits; return the seconds until it should be looked at again."""
        limit = self.limit_kb(pid)
        use = running.tree.look(limit)
        if use.kilobytes > limit:
            self._kill_child(running.job.id, "memory")
        elif running.exceeds_files(pid):
            self._kill_child(running.job.id, "files")
        else:
            shares = max(1, _CORES // len(self.running))
            running.is_held |= share.hold_share(use.processes, shares)
        return _safe_pause(limit - use.kilobytes, use.threads)

    def _group_kb(self, job: ForkRequest) -> int:
        """Limit in kilobytes of a child's group; files in memory count in it."""
        files = job.files_mb * 1024 if self.policy.level == "namespaces" else 0
        return job.memory_mb * 1024 + self.policy.baseline // 1024 + files

    def limit_kb(self, pid: int) -> int:
        """Limit in kilobytes for a child and its descendants."""
        return self.running[pid].job.memory_mb * 1024 + self.policy.baseline // 1024

    def _kill_orphans(self) -> None:
        """Kill orphans, which are reparented to this process as their sub-reaper."""
        known = self.running.keys() | self.helpers
        for _ in range(1000):
            strays = [pid for pid in procfs.child_pids(os.getpid()) if pid not in known]
            if not strays:
                return
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in strays:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _remove_folder(self, folder: str) -> None:
        """Remove a folder; one that takes long in a process, which does not block the loop."""
        if not remove_small_folder(folder):
            words = [*REMOVE, folder]
            self.helpers.add(os.posix_spawn(REMOVE[0], words, {"PATH": "/usr/bin:/bin"}))

    def _end_all_children(self) -> None:
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
        if self.policy.level != "namespaces":
            for pid in list(self.running):
                os.waitpid(pid, 0)
            self.running.clear()
            self._kill_orphans()
            if self.policy.scratch:
                self._remove_folder(self.policy.scratch)

    def _send_report(self, message: JsonObject) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.control.send(json.dumps(message).encode())


def remove_small_folder(folder: str) -> bool:
    """Remove a folder with few files and no folders; False if it is another, and still there."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for _, entry in zip(range(_FEW_FILES), os.scandir(fd)):
                os.unlink(entry.name, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(folder)
    except OSError:
        return False
    return True


def _safe_pause(headroom_kb: int, threads: int) -> float:
    """Longest pause, in seconds, before `threads` threads can take `headroom_kb` of memory."""
    pause = headroom_kb / (_KB_PER_SECOND * max(1, min(threads, _CORES)))
    return min(WATCH_SECONDS, max(_LEAST_WATCH_SECONDS, pause))


def run_jailed_child(
    confinement: ChildConfinement,
    _policy: JailPolicy,
    job: ForkRequest,
    *descriptors: int,
) -> NoReturn:
    """Run in the child: confine it, or report the failure and end; then serve its one request."""
    arrange_descriptors(*descriptors, ruleset=confinement.ruleset)
    try:
        confinement.confine()
    except OSError as error:
        with contextlib.suppress(OSError):
            wire.send(socket.socket(fileno=CHANNEL), "J", str(error).encode())
        os._exit(JAIL_FAILED)
    runner.serve_request(job.work)


def main() -> NoReturn:
    """Entry point: the control socket is descriptor `argv[1]`."""
    serve_control_socket(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # taking the interpreter apart would cost as much as some evaluations


def serve_control_socket(control: socket.socket) -> None:
    """Serve until the control socket closes; its first message is the set-up."""
    control.set_inheritable(False)
    setup = json.loads(control.recv(1 << 20))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        policy = _prepare_process(setup)
    except (ImportError, OSError) as error:
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    control.send(json.dumps({"ready": True, "threads": procfs.thread_count()}).encode())
    gc.collect()
    gc.freeze()
    share.raise_priority()
    confinement = ChildConfinement(policy)
    Zygote(control, policy, functools.partial(run_jailed_child, confinement), confinement).serve()


def _prepare_process(setup: JsonObject) -> JailPolicy:
    """Import the preloaded packages, then inspect this process."""
    for name in setup["packages"]:
        importlib.import_module(name)
        if name == "numpy":
            importlib.import_module("numpy.random")  # loaded lazily otherwise, by every child anew
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in setup["policy"].items()
    }
    policy = JailPolicy(**{**values, "baseline": procfs.data_bytes()})
    folder = f"{policy.scratch or '/tmp'}/rehearsal"
    os.mkdir(folder)
    runner.rehearse(folder)
    remove_small_folder(folder)
    os.umask(0o022)  # children of root have users of their own, who must pass what is made for them
    if policy.level == "namespaces":
        kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    else:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if policy.level == "restricted":
        listable, readable = setup["listable"], setup["readable"]
        # to /proc it writes the weights of sessions; its children can read little of it
        group = f"/proc/self/fd/{policy.groups}"
        own = (policy.scratch, "/dev/null", "/dev/tty", "/proc", group)
        kernel.restrict_paths((*readable, "/dev"), own, listable)
    return policy


if __name__ == "__main__":
    main()
