"""Which release came before the tree, as git knows it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from pathlib import Path

PREVIOUS_VARIABLE = "SA_OUTBOX_TEST_PREVIOUS"
"""Environment variable: any revision, to be taken for the previous release."""
ITSELF = "NONE, the tree is beside itself"


class GitFailedError(Exception):
    """What git says."""


def git(repository: Path, *words: str) -> bytes:
    """The command's output. Variables of a git that started the tests (a hook) are left out."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *words], cwd=repository, env=clean, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise GitFailedError(str(error)) from error
    if done.returncode:
        raise GitFailedError(done.stderr.decode().strip())
    return done.stdout


@dataclass(frozen=True)
class Previous:
    """The revision, or None if there is none; and what a person should read about it."""

    revision: str | None
    about: str


def previous_release(repository: Path) -> Previous:
    """The highest version among the tags behind HEAD: one of HEAD itself is what is tested."""
    if chosen := os.environ.get(PREVIOUS_VARIABLE):
        return Previous(chosen, f"{chosen}, as {PREVIOUS_VARIABLE} says")
    try:
        behind = ("--merged=HEAD", "--no-contains=HEAD")
        tags = git(repository, "tag", "--list", "v*", *behind).decode()
    except GitFailedError as error:
        return Previous(None, f"{ITSELF}: {error}")
    released = {version: tag for tag in tags.split() if (version := _version(tag))}
    if not released:
        return Previous(None, f"{ITSELF}: git knows no version before it{_shallow(repository)}")
    tag = released[max(released)]
    return Previous(tag, tag)


def _version(tag: str) -> Version | None:
    try:
        return Version(tag)
    except InvalidVersion:
        return None


def _shallow(repository: Path) -> str:
    if git(repository, "rev-parse", "--is-shallow-repository").strip() == b"false":
        return ""
    return ". The checkout is shallow: git fetch --unshallow --tags"
