"""A dashboard asked as a browser asks it, without one; and rows that would do harm as markup."""

from __future__ import annotations

import re
from typing import Any

import httpx2
from sqlalchemy import Engine, text

from sa_outbox.dashboard import Dashboard

TOKEN = "a-token-that-is-long-enough"
HOST = "https://ops.example"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&javascript:alert(3)"
EVENT_ID = "01938f00-0000-7000-8000-00000000000a"
_DEEP = "[" * 3000 + "]" * 3000
ODD_ERRORS = {
    "an object": '{"message": 1}',
    "a text": '"text"',
    "null": "null",
    "a number": "7",
    "no objects": '[1, null, [], "x", true]',
    "fields of other kinds": '[{"attempt": "x", "at": 7, "code": {}, "message": [], "error": null,'
    ' "causes": {"a": 1}, "traceback": 5, "fingerprint": []}]',
    "odd tracebacks": '[{"traceback": [1, {"type": 1, "frames": 7, "omitted": "x"}, {"frames": [[],'
    ' {"file": [], "line": "x", "function": 9}, 7]}, []]}]',
    "a time that is none": '[{"attempt": 1, "at": "0001-01-01T00:00:00+14:00"}]',
    "a number without end": f'[{{"attempt": 1{"0" * 5000}}}]',
    "deep": f'[{{"attempt": 1, "message": {_DEEP}, "traceback": [{_DEEP}]}}]',
}
"""What somebody may have written into a column of errors."""


class Visiting:
    """One person's browser: keeps its cookie, posts what its forms hold."""

    def __init__(self, dashboard: Any, base: str = "", **headers: str) -> None:
        self.base = base
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=dashboard),
            base_url=HOST,
            headers={"Accept": "text/html", **headers},
        )
        self.form_token = ""

    async def __aenter__(self) -> Visiting:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def see(self, path: str, **headers: str) -> httpx2.Response:
        answer = await self.client.get(self.base + path, headers=headers)
        if found := re.search(r'name="form_token" value="([\w-]+)"', answer.text):
            self.form_token = found[1]
        return answer

    async def post(self, path: str, headers: Any = None, **fields: Any) -> httpx2.Response:
        """With the token of the last form that was seen, unless one is given."""
        data = {"form_token": self.form_token, **fields}
        return await self.client.post(self.base + path, data=data, headers=headers or {})

    async def sign_in(
        self, token: str = TOKEN, name: str = "grace", **more: str
    ) -> httpx2.Response:
        answer = await self.client.post(
            f"{self.base}/login", data={"name": name, "token": token, **more}
        )
        await self.see("/listeners")
        return answer


def add_harmful_rows(engine: Engine) -> None:
    """Markup in everything that a page shows."""
    values = {"m": MARKUP, "id": EVENT_ID, "json": '{"MARK": "MARK"}'.replace("MARK", _in_json())}
    values["errors"] = (
        '[{"attempt": 1, "code": "MARK", "error": "MARK", "message": "MARK", "at": "MARK",'
        ' "causes": ["MARK"], "fingerprint": "MARK", "traceback": [{"type": "MARK",'
        ' "frames": [{"file": "MARK", "function": "MARK", "code": "MARK", "line": 1}]}]}]'
    ).replace("MARK", _in_json())
    with engine.begin() as connection:
        for statement in _HARMFUL.split(";"):
            connection.execute(text(statement), values)


def _in_json() -> str:
    return MARKUP.replace('"', '\\"')


_HARMFUL = """
INSERT INTO outbox (event_id, event_type, key, tenant, payload, headers)
VALUES (cast(:id AS uuid), :m, :m, :m, cast(:json AS jsonb), cast(:json AS jsonb));
INSERT INTO outbox_listeners
    (name, last_error_code, last_error, last_error_at, locked_by, lease_expires_at)
VALUES (:m, :m, :m, now(), :m, now() + interval '1 hour');
INSERT INTO outbox_consumers (owner, listeners, expires_at)
VALUES (:m, ARRAY[:m], now() + interval '1 hour');
INSERT INTO outbox_deliveries
    (listener, position, event_id, event_type, key, tenant, state, due_at, attempts,
     last_error_code, last_error, errors, cancel_requested_at, cancel_reason)
VALUES (:m, 1, cast(:id AS uuid), :m, :m, :m, 'parked', now() + interval '1 hour', 1,
        :m, :m, cast(:errors AS jsonb), now(), :m);
INSERT INTO outbox_dead_letters
    (listener, position, event_id, event_type, key, tenant, payload, headers, event_created_at,
     reason, attempts, errors)
VALUES (:m, 1, cast(:id AS uuid), :m, :m, :m, cast(:json AS jsonb), cast(:json AS jsonb), now(),
        'attempts', 1, cast(:errors AS jsonb));
INSERT INTO outbox_dead_letters
    (listener, position, event_id, event_type, payload, event_created_at, reason, attempts, errors,
     resolution, resolved_at, resolved_by, resolved_why)
VALUES (:m, 1, cast(:id AS uuid), :m, '{}', now(), 'attempts', 1, cast(:errors AS jsonb),
        'discarded', now(), :m, :m);
INSERT INTO outbox_crons (name, last_tick) VALUES (:m, now());
INSERT INTO outbox_endpoints (name, url, settings, disabled_at, disabled_why)
VALUES (:m, :m, jsonb_build_object('on', jsonb_build_array(cast(:m AS text)),
        cast(:m AS text), cast(:m AS text)), now(), :m);
INSERT INTO outbox_audit
    (action, event_id, event_type, listener, actor_type, actor_id, attempt, detail)
SELECT action, cast(:id AS uuid), :m, :m, :m, :m, 1, cast(:json AS jsonb)
FROM unnest(ARRAY['started', 'succeeded', cast(:m AS text)]) AS action
"""


def shown_as_text(page: str) -> bool:
    """The markup is there, as text, and nowhere as markup."""
    return "&lt;script&gt;alert(1)" in page and not re.search(
        r"<script>|<img|href=.javascript", page
    )


def dashboard_of(outbox: Any, engine: Any, **options: Any) -> Dashboard:
    given = {"token": TOKEN, **options} if "auth" not in options else options
    return Dashboard(outbox, engine, **given)
