"""What an editor shows of the options of a listener: asked of pyright's language server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sa_outbox.declare.listener import ListenerOptions, RelayOptions

OPTIONS = ListenerOptions.__optional_keys__
PROGRAM = """\
from sa_outbox import Outbox
from sa_outbox.relay.kafka import Kafka

outbox = Outbox()
outbox.listener("billing", on="order.*", concurrency=4)
outbox.relay("orders", Kafka("broker:9092"), on="order.*", to="orders", batch_size=9)
"""


class Editor:
    """The least of the protocol that gets an answer."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.program = folder / "program.py"
        self.asked = 0
        folders = [{"uri": folder.as_uri(), "name": folder.name}]
        abilities = {"workspace": {"configuration": True, "workspaceFolders": True}}
        self.ask("initialize", processId=None, workspaceFolders=folders, capabilities=abilities)
        self.send({"method": "initialized", "params": {}})
        document = {"uri": self.program.as_uri(), "languageId": "python", "version": 1}
        opened = {"textDocument": {**document, "text": PROGRAM}}
        self.send({"method": "textDocument/didOpen", "params": opened})

    def at(self, method: str, text: str) -> Any:
        """Ask about the place in the program where *text* begins."""
        line, place = next(
            (number, line.index(text))
            for number, line in enumerate(PROGRAM.splitlines())
            if text in line
        )
        return self.ask(
            f"textDocument/{method}",
            textDocument={"uri": self.program.as_uri()},
            position={"line": line, "character": place},
        )

    def ask(self, method: str, **params: Any) -> Any:
        self.asked += 1
        self.send({"id": self.asked, "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("method") == "workspace/configuration":
                settings = [{"pythonPath": sys.executable}] * len(message["params"]["items"])
                self.send({"id": message["id"], "result": settings})
            elif "method" in message and "id" in message:
                self.send({"id": message["id"], "result": None})
            elif message.get("id") == self.asked:
                return message["result"]

    def send(self, message: dict[str, Any]) -> None:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the language server has ended"
        message: dict[str, Any] = json.loads(self.process.stdout.read(length))
        return message


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    (tmp_path / "program.py").write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, "-m", "pyright.langserver", "--stdio"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield Editor(tmp_path, process)
        finally:
            process.kill()


@pytest.mark.timeout(120)
def test_an_editor_explains_an_option_under_the_pointer(editor: Editor) -> None:
    assert "How many handlers run at once" in str(editor.at("hover", "concurrency=4"))
    assert "number of events read at a time" in str(editor.at("hover", "batch_size=9"))


@pytest.mark.timeout(120)
def test_an_editor_lists_every_option_of_a_call(editor: Editor) -> None:
    (listener,) = editor.at("signatureHelp", "concurrency=4")["signatures"]
    (relay,) = editor.at("signatureHelp", "batch_size=9")["signatures"]

    assert {name for name in OPTIONS if f" {name}: " in listener["label"]} == OPTIONS
    of_relays = {name for name in OPTIONS if f" {name}: " in relay["label"]}
    assert of_relays == RelayOptions.__optional_keys__ | {"timeout"}
