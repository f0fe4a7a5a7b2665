"""Postgres refuses to run as root. Here: as whom it runs instead, and where that user can reach its files.

An unprivileged user often cannot enter the data folder (/root is closed) or the folder the wheel is installed in. Nobody's
permissions are widened for that: the cluster, or a copy of the binaries, then lives in a place of its own under /var/lib
(or /var/tmp), named after the data folder, and the data folder holds a link to it. Places of deleted folders are cleared away.
"""

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from gateway.devtools.embedded.process import Account, EmbeddedError, read_pid, runs

NAMES = ("postgres", "nobody")
OWNER = "data-folder"  # in a place apart: the path of the data folder that it belongs to


def account_for(cluster: Path) -> Account | None:
    """The user to run as: None for ourselves. An existing cluster goes on under the user it belongs to."""
    if os.geteuid() != 0:
        return None
    if cluster.exists() and (owner := cluster.stat().st_uid) != 0:
        return Account(str(owner), owner, cluster.stat().st_gid)
    for name in NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(f"Postgres refuses to run as root and none of the users {', '.join(NAMES)} exists: start as an ordinary user")


def home_for(data: Path) -> Path:
    """The folder for Postgres' files: `data` itself, or the place apart if the unprivileged user cannot enter `data`."""
    link = data / "postgres"
    if link.is_symlink() and link.readlink().parent.is_dir():
        return link.readlink().parent
    account = account_for(link)
    if account is None or link.exists():
        return data
    data.chmod(stat.S_IMODE(data.stat().st_mode) | stat.S_IXOTH)
    return data if can_enter(data, account) else place_apart(data, account)


def place_apart(data: Path, account: Account) -> Path:
    """The folder outside `data` for its files."""
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    for base in (Path("/var/lib"), Path("/var/tmp"), Path(tempfile.gettempdir())):  # noqa: S108 - our own folder, owner checked
        shared = base / "idempotency-gateway"
        if not base.is_dir() or not can_enter(base, account) or not os.access(base, os.W_OK) or shared.is_symlink():
            continue
        shared.mkdir(exist_ok=True)
        if shared.stat().st_uid != 0:
            continue
        shared.chmod(0o755)
        throw_away_orphans(shared)
        place = shared / name
        place.mkdir(exist_ok=True)
        place.chmod(0o711)
        (place / OWNER).write_text(str(data), "utf-8")
        return place
    raise EmbeddedError(f"the user {account.name} can enter neither {data} nor a folder for temporary files: use another data folder")


def throw_away_orphans(shared: Path) -> None:
    """Delete the places whose data folder is gone, unless a server still runs there."""
    for place in shared.iterdir():
        try:
            data = Path((place / OWNER).read_text("utf-8"))
        except OSError:
            continue
        pid = read_pid(place / "postgres" / "postmaster.pid")
        if not data.exists() and (pid is None or not runs(pid, "-D", str(place / "postgres"))):
            shutil.rmtree(place, ignore_errors=True)


def link(data: Path, cluster: Path) -> None:
    """Let `data` point to its cluster apart. What a deleted data folder of the same path left there is thrown away."""
    pointer = data / "postgres"
    if pointer.is_symlink() and pointer.readlink() == cluster:
        return
    shutil.rmtree(cluster, ignore_errors=True)
    pointer.unlink(missing_ok=True)
    pointer.symlink_to(cluster)


def can_enter(folder: Path, account: Account) -> bool:
    """Whether `account` may pass through `folder` and all its parents, by their mode bits."""
    return all(allows(each, account, 1) for each in (folder, *folder.parents))


def allows(path: Path, account: Account, bits: int) -> bool:
    """Whether the mode of `path` grants `account` all of `bits` (4 read, 1 execute or pass)."""
    found = path.stat()
    shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
    return (stat.S_IMODE(found.st_mode) >> shift) & bits == bits


def give_to(path: Path, account: Account | None) -> None:
    """Make `path` (one file or an empty folder) the property of `account`."""
    if account is not None:
        try:
            os.chown(path, account.uid, account.gid)
        except OSError as error:
            raise EmbeddedError(f"cannot hand {path} to the user {account.name} ({error}): start as an ordinary user") from error


def reachable_binaries(package: Path, home: Path, account: Account | None) -> Path:
    """The `bin` folder of the installed wheel `package`, or of a copy in `home` if `account` cannot use it where it is."""
    bins = package / "pginstall" / "bin"
    if account is None or (can_enter(bins, account) and allows(bins / "postgres", account, 5)):
        return bins
    copy = home / "binaries"
    identity = f"{package} {(bins / 'postgres').stat().st_mtime_ns}\n"
    marker = copy / "copied-from"
    if not marker.exists() or marker.read_text("utf-8") != identity:
        shutil.rmtree(copy, ignore_errors=True)
        for part in ("bin", "lib", "share"):
            copy_open(package / "pginstall" / part, copy / package.name / "pginstall" / part)
        libraries = package.with_name(package.name + ".libs")  # found by the binaries' relative run path
        if libraries.exists():
            copy_open(libraries, copy / libraries.name)
        open_folders(copy)
        marker.write_text(identity, "utf-8")
    return copy / package.name / "pginstall" / "bin"


def copy_open(source: Path, target: Path) -> None:
    """Copy a tree so that every user may read it, whatever the umask under which it was installed."""
    shutil.copytree(source, target, symlinks=True)
    for folder, _, files in os.walk(target):
        for name in files:
            file = Path(folder, name)
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)


def open_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        Path(folder).chmod(0o755)
