"""A shell in a terminal, as people have it: programs write as for people, and Ctrl-C works."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from tests.support import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHELL = "import pty; pty.spawn(['bash', '--norc', '--noprofile', '--noediting'])"
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PROMPT = re.compile(r"<ready (\d+)>")


class Terminal:
    """Closed by Ctrl-C and the end of the shell: whatever runs in it ends with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, patience: float) -> None:
        self._patience = patience
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SHELL],
            cwd=folder,
            env={**environment, "PS1": "<ready $?>", "TERM": "dumb"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,  # what came, and no waiting for more
        )
        self._written = b""
        self._looked_at = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.wait_for_prompt()
        self.type("stty -echo")
        self.wait_for_prompt()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while more := self._process.stdout.read(65536):
            self._written += more

    def type(self, line: str) -> None:
        self._send(line.encode() + b"\n")

    def interrupt(self) -> None:
        self._send(b"\x03")

    def _send(self, keys: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(keys)
        self._process.stdin.flush()

    @property
    def output(self) -> str:
        """What came since it was last looked at, as a person reads it."""
        text = self._written[self._looked_at :].decode(errors="replace")
        return _COLOUR.sub("", text).replace("\r", "")

    def look_away(self) -> None:
        self._looked_at = len(self._written)

    def wait_for_prompt(self) -> tuple[str, int]:
        """The output of the command, and its exit status."""
        try:
            eventually(lambda: _PROMPT.search(self.output), within=self._patience)
        except AssertionError:
            raise AssertionError(f"no prompt after:\n{self.output}") from None
        output, status, _ = _PROMPT.split(self.output, maxsplit=1)
        self.look_away()
        return output, int(status)

    def close(self) -> None:
        """Ctrl-C until there is a prompt, then the end of the shell."""
        if self._process.poll() is None:
            self.look_away()
            self.interrupt()
            try:
                self.wait_for_prompt()
                self.type("exit")
                self._process.wait(timeout=self._patience)
            finally:
                self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._reader.join()
        self._process.stdout.close()
