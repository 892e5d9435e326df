"""docs/examples: each is a folder that somebody copies, and a page that says how to run it.

They run as their compose files say: these commands, as processes, on the tests' PostgreSQL, with
nothing installed but what their requirements name. Their images are not built, and no container is
started: the files are only checked by linters.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as default_policy
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import confluent_kafka
import pytest
import yaml
from sqlalchemy import URL, create_engine, text

from sa_outbox.webhooks import new_secret, sign
from tests.support import eventually, kafka
from tests.support.brokers import answers, free_port
from tests.support.programs import Program, Programs, ask, comes, is_up, programs, run

from .test_code_blocks import blocks, commands

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
FOLDERS = sorted(each for each in EXAMPLES.iterdir() if (each / "requirements.txt").exists())
DOCKERFILES = [each / "Dockerfile" for each in FOLDERS]
COMPOSE_FILES = [each / "compose.yaml" for each in FOLDERS]
OFFICIAL = {"python:3.13-slim", "postgres:18", "apache/kafka:4.1.0"}


def name_of(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def page_of(folder: Path) -> Path:
    return folder.with_suffix(".md")


def files_of(folder: Path) -> list[Path]:
    return [
        each
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not {"__pycache__", "pgdata"} & {*each.parts}
    ]


def address(url: URL) -> str:
    return url.render_as_string(hide_password=False)


class Deployment:
    """The services of a compose file, with ports of this machine that are free."""

    def __init__(self, folder: Path, started: Programs, **environment: str) -> None:
        self._services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
        self._image = next(
            json.loads(line.removeprefix("CMD"))
            for line in (folder / "Dockerfile").read_text().splitlines()
            if line.startswith("CMD")
        )
        self._folder = folder
        self._started = started
        self._environment = environment
        self._ports: dict[str, str] = {}

    def port(self, number: str) -> str:
        """The one instead of this *number*."""
        return self._ports.setdefault(number, str(free_port()))

    def url(self, number: int, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port(str(number))}{path}"

    def is_up(self, *numbers: int) -> None:
        """Wait until all of them are ready. Several programs start at once: that may take long."""
        for each in numbers:
            eventually(partial(is_up, self.url(each, "/readyz")), within=60)

    def start(self, service: str, **more: str) -> Program:
        return self._started.start(self._command(service), **self._variables(service, more))

    def run(self, service: str, **more: str) -> str:
        return run(self._folder, self._command(service), **self._variables(service, more))

    def _variables(self, service: str, more: dict[str, str]) -> dict[str, str]:
        """Those that it is given there, with the values here."""
        there = self._services[service].get("environment", {})
        return {name: self._environment.get(name, value) for name, value in there.items()} | more

    def _command(self, service: str) -> list[str]:
        words = self._services[service].get("command", self._image)
        port = re.compile(r"(?:^|(?<=^0.0.0.0:))[0-9]{4}$")
        return [port.sub(lambda found: self.port(found[0]), each) for each in words]


class Mailbox(BaseHTTPRequestHandler):
    """A service that is sent JSON. The first request fails."""

    got: list[tuple[dict[str, str], Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(({k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
        self.send_response(503 if len(self.got) == 1 else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def mail_service() -> Iterator[tuple[str, list[tuple[dict[str, str], Any]]]]:
    """Its address, and what it is sent."""
    got: list[tuple[dict[str, str], Any]] = []
    handler = type("Mails", (Mailbox,), {"got": got})
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as port:
        yield f"http://127.0.0.1:{port}", got


@contextmanager
def serving(server: socketserver.TCPServer) -> Iterator[int]:
    """Its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rows(url: URL, statement: str) -> list[Any]:
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(text(statement))]
    engine.dispose()
    return found


TEA = {"email": "ada@example.com", "product": "tea", "quantity": 2}


def test_an_order_of_the_shop_gets_its_invoice_and_its_mail(
    new_database: Callable[[], URL],
) -> None:
    url = new_database()
    with mail_service() as (mail_url, mails), programs(EXAMPLES / "shop") as started:
        shop = Deployment(
            EXAMPLES / "shop", started, DATABASE_URL=address(url), SHOP_MAIL_URL=mail_url
        )
        shop.run("migrate")
        web, consumer = shop.start("web"), shop.start("consumer", SHOP_MAIL_URL=mail_url)
        shop.is_up(8000, 9100)

        status, order, headers = ask(shop.url(8000, "/orders"), TEA, X_Request_ID="req-7")
        assert (status, order["total_cents"], headers["x-request-id"]) == (201, 900, "req-7")
        one = shop.url(8000, f"/orders/{order['id']}")
        assert comes(one, invoice=1)["invoice_void"] is False
        assert ask(one, method="DELETE")[1]["cancelled"]
        comes(one, invoice_void=True)
        assert ask(shop.url(8000, "/orders"), TEA | {"product": "dragon"})[0] == 404
        assert ask(shop.url(8000, "/orders"), TEA, X_Request_ID="bad id")[0] == 422

        eventually(lambda: len(mails) == 2)  # the first one failed
        eventually(lambda: consumer.logged("mail sent"))
        (first, body), (second, _) = mails
        assert body == {"to": "ada@example.com", "subject": "Your invoice 1"}
        assert first["idempotency-key"] == second["idempotency-key"]
        assert second["x-request-id"] == "req-7"
        assert consumer.logged("invoice written")[0]["request_id"] == "req-7"
        assert web.logged("order placed")[0]["request_id"] == "req-7"
        assert [each.ends() for each in (consumer, web)] == [0, -signal.SIGTERM]
    assert rows(url, "SELECT count(*) FROM orders") == [(1,)]
    # The request that cancelled named none: it was given one.
    ids = [each for (each,) in rows(url, "SELECT headers->>'request_id' FROM outbox ORDER BY id")]
    assert ids[0] == "req-7"
    assert len([each for each in ids if each == "req-7"]) == 2
    assert all(ids)


def test_the_shop_delivers_inside_the_application_too(new_database: Callable[[], URL]) -> None:
    with programs(EXAMPLES / "shop") as started:
        shop = Deployment(EXAMPLES / "shop", started, DATABASE_URL=address(new_database()))
        shop.run("migrate")
        web = shop.start("web", SHOP_CONSUMER="inside")
        shop.is_up(8000)

        order = ask(shop.url(8000, "/orders"), TEA)[1]

        comes(shop.url(8000, f"/orders/{order['id']}"), invoice=1)
        web.waits_for('"event": "mail"')
        web.ends()
        assert web.logged("stopped"), web.text


def test_the_history_of_the_shop_makes_its_tables_and_the_outbox_and_nothing_is_missing(
    new_database: Callable[[], URL],
) -> None:
    url = new_database()

    def alembic(*words: str) -> None:
        run(EXAMPLES / "shop", ["python", "-m", "alembic", *words], DATABASE_URL=address(url))

    alembic("upgrade", "head")
    alembic("check")
    run(EXAMPLES / "shop", ["sa-outbox", "verify"], DATABASE_URL=address(url))
    alembic("downgrade", "base")

    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    assert rows(url, f"{tables} AND relkind IN ('r', 'p')") == [("alembic_version",)]


class MailServer(socketserver.StreamRequestHandler):
    """As much of SMTP as a sender of one mail needs."""

    got: list[EmailMessage]

    def handle(self) -> None:
        self._say("220 ready")
        for line in self.rfile:
            word = line.strip().upper()
            if word == b"DATA":
                self._say("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                mail = message_from_bytes(b"".join(lines), policy=default_policy)
                self.got.append(mail)
            self._say("221 bye" if word == b"QUIT" else "250 ok")
            if word == b"QUIT":
                return

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


def test_orders_of_the_flask_shop_take_from_the_stock_until_purchasing_is_told(
    new_database: Callable[[], URL],
) -> None:
    url, mails = new_database(), list[EmailMessage]()
    handler = type("Mails", (MailServer,), {"got": mails})
    with (
        serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)) as port,
        programs(EXAMPLES / "flask_shop") as started,
    ):
        shop = Deployment(EXAMPLES / "flask_shop", started, DATABASE_URL=address(url))
        shop.run("prepare")
        smtp = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(port)}
        web, consumer = shop.start("web"), shop.start("consumer", **smtp)
        shop.is_up(8000, 9100)

        def order(quantity: int, **headers: str) -> tuple[int, str]:
            wanted = {"product": "tea", "quantity": quantity}
            status, made, _ = ask(shop.url(8000, "/orders"), wanted, **headers)
            return status, shop.url(8000, f"/orders/{made['id']}")

        status, first = order(16, X_Request_ID="req-7")
        assert status == 201
        comes(first, state="reserved")
        comes(order(16)[1], state="backordered")
        assert ask(shop.url(8000, "/orders"), {"product": "dragon"})[0] == 404

        consumer.waits_for("mail sent: 4 left of tea")
        assert [each.ends() for each in (consumer, web)] == [0, 0]
    (mail,) = mails
    ((event_id,),) = rows(url, "SELECT event_id FROM outbox WHERE event_type = 'stock.low'")
    assert (mail["Subject"], mail["Message-ID"]) == (
        *("4 left of tea", f"<{event_id}@shop.example>"),
    )
    assert mail.get_content().strip() == "Request req-7"
    assert rows(url, "SELECT in_stock FROM products") == [(4,)]
    assert rows(url, "SELECT count(*) FROM orders") == [(2,)]


def test_the_job_system_does_the_work_of_two_customers(new_database: Callable[[], URL]) -> None:
    url, folder = new_database(), EXAMPLES / "jobs"
    with programs(folder) as started:
        jobs = Deployment(folder, started, DATABASE_URL=address(url))
        jobs.run("migrate")
        jobs.run("work")
        consumer = jobs.start("consumer")
        jobs.is_up(9100)

        declined = [("large", "payment.due")]
        dead = "SELECT tenant, event_type FROM outbox_dead_letters"
        eventually(lambda: rows(url, dead) == declined, within=60)
        lines = "SELECT planned, lines FROM projects JOIN exports ON project_id = projects.id"
        eventually(lambda: rows(url, lines) == [(True, 3), (True, 3)], within=60)
        assert consumer.ends() == 0


@pytest.mark.long
def test_webhooks_are_verified_and_acted_on_once_while_their_secret_changes(
    new_database: Callable[[], URL], tmp_path: Path
) -> None:
    sender_url, receiver_url = new_database(), new_database()
    secrets, folder = tmp_path / "secrets", EXAMPLES / "webhooks"
    sealing = {
        "SA_OUTBOX_DATABASE_URL": address(sender_url),
        "SA_OUTBOX_SECRET_KEY": run(folder, ["sa-outbox", "endpoints", "new-key"]).strip(),
    }

    def endpoints(*words: str) -> str:
        return run(folder, ["sa-outbox", "endpoints", *words], **sealing).splitlines()[-1]

    with programs(folder) as started:
        both = Deployment(
            folder,
            started,
            **sealing,
            SENDER_DATABASE_URL=address(sender_url),
            SENDER_ALLOW="127.0.0.0/8",
            RECEIVER_DATABASE_URL=address(receiver_url),
            RECEIVER_SECRETS_FILE=str(secrets),
        )
        both.run("migrate-sender")
        both.run("migrate-receiver", SA_OUTBOX_DATABASE_URL=address(receiver_url))
        port = both.port("8100")
        there = ["--allow", "127.0.0.0/8", "--port", port]
        hook = both.url(8100, "/hooks/shop")
        old = endpoints("add", "acme", hook, "--on", "order.*", *there)
        secrets.write_text(f"{old}\n")
        consumer = both.start("consumer", SENDER_PORTS=port)
        both.start("sender")
        receiver = both.start("receiver")
        both.is_up(8000, 8100, 9100)

        def order(cents: int, points: int) -> None:
            wanted = {"customer": "ada", "cents": cents}
            assert ask(both.url(8000, "/orders"), wanted)[0] == 201
            comes(both.url(8100, "/accounts/ada"), points=points)

        order(1200, 12)
        claims = len(consumer.logged("lease claimed"))
        new = endpoints("rotate", "acme")
        eventually(lambda: len(consumer.logged("lease claimed")) > claims)  # it has noticed
        order(300, 15)  # the receiver knows the old one only
        secrets.write_text(f"{new}\n")
        endpoints("rotate", "acme", "--finish")
        order(500, 20)  # and now the new one only

        again = ["listeners", "rewind", "webhook:acme", "--to-beginning", "--yes"]
        run(folder, ["sa-outbox", *again], **sealing)
        eventually(lambda: receiver.text.count("seen before") == 3)
        assert ask(both.url(8100, "/accounts/ada"))[1] == {"points": 20}

        forged = {"type": "order.placed", "data": {"customer": "ada", "cents": 99_900}}
        signed = sign(json.dumps(forged).encode(), message_id="m-1", secrets=new_secret())
        assert ask(hook, forged)[0] == 400
        assert ask(hook, forged, **signed)[0] == 400
        assert ask(hook, {"text": "x" * 300_000})[0] == 413
        assert ask(both.url(8100, "/accounts/ada"))[1] == {"points": 20}
        assert consumer.ends() == 0
    assert rows(sender_url, "SELECT count(*) FROM outbox_dead_letters") == [(0,)]


@pytest.mark.long
def test_a_message_of_kafka_makes_one_parcel_however_often_it_comes(
    new_database: Callable[[], URL],
) -> None:
    orders_url, shipping_url, folder = new_database(), new_database(), EXAMPLES / "kafka"
    parcels = "SELECT product FROM parcels ORDER BY order_id"

    with kafka.cluster() as cluster, programs(folder) as started:
        cluster.create("orders", 3)
        both = Deployment(
            folder,
            started,
            KAFKA=cluster.addresses,
            ORDERS_DATABASE_URL=address(orders_url),
            SHIPPING_DATABASE_URL=address(shipping_url),
        )
        of_orders = {"SA_OUTBOX_DATABASE_URL": address(orders_url)}
        of_shipping = {"SA_OUTBOX_DATABASE_URL": address(shipping_url)}
        both.run("migrate-orders", **of_orders)
        both.run("migrate-shipping", **of_shipping)
        both.start("orders", **of_orders)
        relay = both.start("relay", **of_orders)
        receiver = both.start("receive", **of_shipping)
        shipping = both.start("shipping", **of_shipping)
        both.is_up(8000, 9100, 9200)
        receiver.waits_for("receiving")

        def order(product: str) -> None:
            wanted = {"customer": "ada", "product": product}
            assert ask(both.url(8000, "/orders"), wanted, X_Request_ID="req-7")[0] == 201

        order("tea")
        order("coffee")
        eventually(lambda: rows(shipping_url, parcels) == [("tea",), ("coffee",)])

        receiver.ends(signal.SIGKILL)
        send(cluster.addresses, b"not JSON", event_id="m-1", event_type="order.placed")
        send(cluster.addresses, b'{"a": "\\u0000"}', event_id="m-2", event_type="order.placed")
        send(cluster.addresses, b"{}")
        again = ["listeners", "rewind", "orders-to-kafka", "--to-beginning", "--yes"]
        run(folder, ["sa-outbox", *again], **of_orders)
        order("cup")
        receiver = both.start("receive", **of_shipping)
        eventually(lambda: rows(shipping_url, parcels) == [("tea",), ("coffee",), ("cup",)])
        dead = "SELECT listener, count(*) FROM outbox_dead_letters GROUP BY listener"
        eventually(lambda: rows(shipping_url, dead) == [("unreadable", 3)])
        seen = re.compile(r"seen_before=(\d+)")
        eventually(lambda: sum(int(each) for each in seen.findall(receiver.text)) >= 2)
        assert [each.ends() for each in (receiver, relay, shipping)] == [0, 0, 0]
    assert rows(shipping_url, "SELECT DISTINCT request_id FROM parcels") == [("req-7",)]
    assert rows(shipping_url, "SELECT count(*) FROM parcels") == [(3,)]


def send(brokers: str, value: bytes, **headers: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers})
    producer.produce("orders", value, headers=list(headers.items()))
    assert producer.flush(20) == 0


def test_an_example_runs_with_nothing_but_what_it_requires() -> None:
    seen = "import importlib.util as u; print(*(bool(u.find_spec(each)) for each in %r))"
    packages = ("sqlalchemy", "prometheus_client", "flask", "honcho")

    found = run(EXAMPLES / "jobs", ["python", "-c", seen % (packages,)])

    assert found.split() == ["True", "True", "False", "False"]


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_an_example_is_run_by_hand_and_deployed_in_containers(folder: Path) -> None:
    files = {each.name for each in folder.iterdir()}

    assert {"dev.py", "requirements-dev.txt", "requirements.txt"} <= files
    assert {".dockerignore", "Dockerfile", "compose.yaml"} <= files


def test_every_folder_is_an_example_with_a_page() -> None:
    folders = {each for each in EXAMPLES.iterdir() if each.is_dir() and each.name[0] not in "._"}

    assert folders == {*FOLDERS}
    assert [each for each in FOLDERS if not page_of(each).exists()] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_page_names_every_file_and_shows_what_is_in_them(folder: Path) -> None:
    page = page_of(folder)
    files = files_of(folder)

    unnamed = [
        str(file.relative_to(folder))
        for file in files
        if file.name not in ("__init__.py", ".dockerignore")
        and not re.search(rf"`[\w/]*{re.escape(file.name)}`", page.read_text())
        and f"`{file.parent.name}/`" not in page.read_text()
    ]
    assert unnamed == []
    sources = [file.read_text() for file in files]
    for block in blocks(page):
        if block.language in ("python", "py", "yaml"):
            shown = "\n".join(block.lines)
            assert any(shown in source for source in sources), shown


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_page_gets_somebody_going_with_two_commands(folder: Path) -> None:
    first, second, *_ = commands(page_of(folder))

    assert first == "pip install -r requirements-dev.txt"
    assert second == "python dev.py"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that PostgreSQL may enter too, which runs as nobody if we are root."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.long
@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_copy_runs_on_its_own_and_stops_at_sigterm(folder: Path, elsewhere: Path) -> None:
    copy = elsewhere / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("pgdata", "__pycache__"))
    script = (copy / "dev.py").read_text()
    ports = {number: free_port() for number in re.findall(r"\b[89][0-9]00\b", script)}
    for number, port in ports.items():
        script = re.sub(rf"\b{number}\b", str(port), script)
    (copy / "dev.py").write_text(script)

    with programs(copy) as started:
        everything = started.start(["python", "dev.py"])
        eventually(
            lambda: (
                everything.process.poll() is not None
                or all(answers("127.0.0.1", each) for each in ports.values())
            ),
            within=90,
        )
        assert everything.process.poll() is None
        everything.ends()

    assert ports

    assert "Traceback" not in everything.text, everything.text
    assert not (copy / "pgdata" / "postmaster.pid").exists()


@pytest.mark.parametrize("file", DOCKERFILES, ids=name_of)
def test_a_linter_finds_nothing_wrong_with_a_dockerfile(file: Path) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"  # its wheel is this program
    if not hadolint.exists():
        pytest.skip("no hadolint for this machine")

    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=name_of)
def test_a_compose_file_fits_its_schema(file: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema"),
            *("--builtin-schema", "vendor.compose-spec", str(file)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_images_are_official_ones_and_the_files_say_that_nobody_ran_them() -> None:
    for file in (*DOCKERFILES, *COMPOSE_FILES):
        found = {*re.findall(r"^(?:FROM|\s+image:) (\S+)$", file.read_text(), re.MULTILINE)}
        assert found <= OFFICIAL, file
        assert re.search(r"^# .*the tests of sa_outbox do not", file.read_text(), re.MULTILINE)
