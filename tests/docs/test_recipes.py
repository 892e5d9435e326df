"""Recipes: short, and what they say about other programs is tried with these programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import jsonschema
import kubernetes_validate
import psycopg
import pytest
import yaml
from sqlalchemy import URL

from sa_outbox import Outbox, schema
from sa_outbox.consumer import ConsumerSettings
from sa_outbox.monitoring.families import FAMILIES
from tests.support import eventually
from tests.support.pooler import pooled

from .test_code_blocks import RECIPES, blocks, name_of, program, run_page

MAX_WORDS = 500
HIDDEN = re.compile(r"^<!-- hidden:$.*?^-->$", re.MULTILINE | re.DOTALL)


def block(page: Path, language: str) -> str:
    (found,) = (each for each in blocks(page) if each.language == language)
    return "\n".join(found.lines)


def recipe(name: str) -> Path:
    (page,) = (page for page in RECIPES if page.stem == name)
    return page


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_a_recipe_is_short(page: Path) -> None:
    assert len(HIDDEN.sub("", page.read_text()).split()) < MAX_WORDS


def test_producers_behind_pgbouncer_in_transaction_mode_wake_a_consumer(
    new_database: Callable[[], URL], tmp_path: Path
) -> None:
    page = recipe("pgbouncer")
    settings = ConfigParser()
    settings.read_string(block(page, "ini"))
    database = new_database()

    with pooled(database, **settings["pgbouncer"]) as pooler:
        run_page(
            page,
            tmp_path,
            DATABASE_URL=database.render_as_string(hide_password=False),
            POOLER_URL=pooler.render_as_string(hide_password=False),
        )


PORT = "9100"
FORCED_AFTER = 4
"""Seconds beyond the grace period after which a consumer is ended by force."""


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(block(recipe("systemd"), "ini"))
    return parser


def dockerfile(instruction: str) -> list[str]:
    """The command of an *instruction*, in exec form."""
    lines = block(recipe("docker"), "dockerfile").splitlines()
    (found,) = (line for line in lines if line.startswith(instruction))
    return [str(word) for word in json.loads(found.removeprefix(instruction))]


def manifests() -> dict[str, Any]:
    """Of the recipe for Kubernetes, by kind; the adapter's rules, which have none, as "rules"."""
    found: dict[str, Any] = {}
    for each in blocks(recipe("kubernetes")):
        if each.language == "yaml":
            documents = yaml.safe_load_all("\n".join(each.lines))
            found |= {one.get("kind", "rules"): one for one in documents}
    return found


def container() -> Any:
    (found,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found


def with_port(words: list[str], port: int) -> list[str]:
    """As it runs here: with this interpreter, on a port that is free."""
    assert words[0].endswith("python")
    return [sys.executable, *(word.replace(PORT, str(port)) for word in words[1:])]


def answers(address: str) -> bool:
    try:
        with urlopen(address) as response:
            return bool(response.status == 200)
    except URLError:
        return False


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("docker", dockerfile("CMD")),
        ("systemd", shlex.split(unit()["Service"]["ExecStart"])),
        ("kubernetes", container()["command"]),
    ],
    ids=["docker", "systemd", "kubernetes"],
)
def test_the_command_of_a_deployment_works_is_healthy_and_stops_at_sigterm(
    name: str, command: list[str], new_database: Callable[[], URL], tmp_path: Path
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text(program(recipe(name)))
    url = new_database().render_as_string(hide_password=False)
    schema.transact(url, lambda connection: schema.migrate(connection, Outbox().settings.names))
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]

    with subprocess.Popen(
        with_port(command, port),
        cwd=tmp_path,
        env={**os.environ, "SA_OUTBOX_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        text=True,
    ) as consumer:
        try:
            eventually(lambda: answers(f"http://127.0.0.1:{port}/readyz"), within=30)
            subprocess.run(with_port(dockerfile("    CMD"), port), check=True)
        finally:
            consumer.terminate()
        printed = consumer.communicate()[0]

    assert consumer.returncode == 0, printed


def test_the_unit_gives_a_consumer_the_time_it_needs_to_stop() -> None:
    service = unit()["Service"]

    assert int(service["TimeoutStopSec"]) > (
        ConsumerSettings().grace_period.total_seconds() + FORCED_AFTER
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    here = block(recipe("systemd"), "ini").replace("/srv/shop/.venv/bin/python", sys.executable)
    (tmp_path / "shop-consumer.service").write_text(here)

    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "shop-consumer.service"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 0, answer.stderr
    assert "shop-consumer" not in answer.stderr, answer.stderr


@pytest.mark.parametrize("version", ["1.30", "1.34"])
@pytest.mark.parametrize("kind", ["Deployment", "HorizontalPodAutoscaler"])
def test_kubernetes_takes_the_manifests(kind: str, version: str) -> None:
    kubernetes_validate.validate(manifests()[kind], version, strict=True)


MODELS_OF_KEDA = Path(sys.prefix) / "keda"
SCHEMA_OF_KEDA = """
import json, sys
sys.path.insert(0, sys.argv[1])
from cloudcoil.models.keda.v1alpha1 import ScaledObject
print(json.dumps(ScaledObject.model_json_schema(by_alias=True)))
"""
needs_keda = pytest.mark.skipif(
    not MODELS_OF_KEDA.exists(),
    reason="needs PyPI's cloudcoil.models.keda: make programs fetches it",
)


@pytest.fixture(scope="module")
def schema_of_keda() -> Any:
    """Of a ScaledObject, made from KEDA's resource definition; closed for fields that it has not.

    The package stays out of this environment: its plugin for pytest needs other packages.
    """
    printed = subprocess.run(
        [sys.executable, "-c", SCHEMA_OF_KEDA, MODELS_OF_KEDA],
        capture_output=True,
        text=True,
        check=True,
    )
    definition = json.loads(printed.stdout)
    for each in (definition, *definition["$defs"].values()):
        if "properties" in each:
            each["additionalProperties"] = False
    return definition


@needs_keda
def test_keda_takes_the_manifest(schema_of_keda: Any) -> None:
    jsonschema.validate(manifests()["ScaledObject"], schema_of_keda)


@needs_keda
@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ("spec", {"minReplicas": 1}),
        ("spec", {"maxReplicaCount": "8"}),
        ("spec", {"triggers": [{"metadata": {}}]}),
        ("spec", {"triggers": [{"type": "postgresql", "metadata": {"targetQueryValue": 500}}]}),
        ("metadata", {"title": "shop"}),
    ],
)
def test_keda_would_not_take_another(
    where: str, wrong: dict[str, Any], schema_of_keda: Any
) -> None:
    manifest = manifests()["ScaledObject"]
    manifest[where] |= wrong

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, schema_of_keda)


def test_the_probes_and_the_scalers_ask_for_what_there_is() -> None:
    """What a trigger of KEDA is told are strings by name, in no schema: they are named here."""
    found, pod = manifests(), container()
    target, scaled = found["Deployment"], found["ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    (metric,) = found["HorizontalPodAutoscaler"]["spec"]["metrics"]

    assert {pod[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness")} == {
        "/healthz",
        "/readyz",
    }
    assert str(pod["ports"][0]["containerPort"]) == PORT
    grace = target["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > ConsumerSettings().grace_period.total_seconds() + FORCED_AFTER
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    assert scaled["spec"]["scaleTargetRef"] == {"name": target["metadata"]["name"]}
    assert trigger["type"] == "postgresql"
    assert trigger["metadata"].keys() == {"connectionFromEnv", "query", "targetQueryValue"}
    assert metric["external"]["metric"]["name"] in {each.name for each in FAMILIES}


def test_the_adapter_takes_the_largest_of_what_consumers_report() -> None:
    """The backlog belongs to the database: to add up what each of them says is to multiply it."""
    found = manifests()
    (rule,) = found["rules"]["externalRules"]
    (metric,) = found["HorizontalPodAutoscaler"]["spec"]["metrics"]

    assert rule["seriesQuery"].startswith(metric["external"]["metric"]["name"] + "{")
    assert rule["metricsQuery"] == "max by (listener) (<<.Series>>{<<.LabelMatchers>>})"
    assert metric["external"]["metric"]["selector"]["matchLabels"].keys() == {"listener"}


def test_the_query_of_keda_counts_what_waits(new_database: Callable[[], URL]) -> None:
    (trigger,) = manifests()["ScaledObject"]["spec"]["triggers"]
    url = new_database().render_as_string(hide_password=False)
    schema.transact(url, lambda connection: schema.migrate(connection, Outbox().settings.names))

    with psycopg.connect(url) as connection:

        def asked() -> object:
            (row,) = connection.execute(trigger["metadata"]["query"]).fetchall()
            return row[0]

        assert asked() == 0  # nobody is registered: a number, and not NULL
        connection.execute(
            "INSERT INTO outbox_listeners (name, paused_at) VALUES ('a', NULL), ('b', now());"
            "INSERT INTO outbox (event_id, event_type, payload)"
            " SELECT gen_random_uuid(), 'order.placed', '{}' FROM generate_series(1, 3);"
            "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state,"
            " due_at) SELECT 'a', n, gen_random_uuid(), 'order.placed', 'parked',"
            " now() + make_interval(hours => n) FROM generate_series(-1, 2) AS n"
        )
        assert asked() == 3 + 2
