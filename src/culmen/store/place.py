"""Where a run may lie: SQLite's write-ahead log needs memory shared between processes, so no network file systems."""

from __future__ import annotations

from pathlib import Path

from culmen.core.errors import UserError

# fmt: off
NETWORK = frozenset((
    "nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "afs", "pvfs2",
    "orangefs", "panfs", "9p", "ncpfs", "coda", "glusterfs", "davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs",
    "fuse.gcsfuse", "fuse.rclone", "fuse.ceph", "fuse.juicefs",
))
# fmt: on


def filesystem(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path` (absolute), from text in the form of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].encode("ascii", "backslashreplace").decode("unicode_escape")
        inside = point == "/" or path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def require_local(path: Path) -> None:
    """Raise `UserError` if `path` lies on a network file system. Where the system cannot tell, it passes."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return
    refuse_network(path, filesystem(path.resolve(), mounts))


def refuse_network(path: Path, kind: str) -> None:
    """Raise `UserError` if `kind` is a network file system."""
    if kind in NETWORK:
        raise UserError(
            f"a run cannot be kept on a network file system ({kind}): its journal could be damaged there",
            where=str(path),
            fix="give a folder on a local disk with --run-dir, or keep the journal in a database: --db URL",
        )
