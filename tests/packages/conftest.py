"""What is built once for all tests of a folder."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.packages import ROOT, build


@dataclass(frozen=True)
class Packages:
    """As they are uploaded; *unpacked* is the tree in the source distribution."""

    wheel: Path
    sdist: Path
    unpacked: Path


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("packages")
    sdist = build(ROOT, "sdist", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    return Packages(build(ROOT, "wheel", folder), sdist, unpacked)
