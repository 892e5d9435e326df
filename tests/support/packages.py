"""Wheels and source distributions of a tree, and environments that have nothing but a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS_VARIABLE = "SA_OUTBOX_TEST_PYTHONS"
"""Environment variable: interpreters to test packages on, apart by spaces; else the one at hand."""
CONSTRAINTS_VARIABLE = "SA_OUTBOX_TEST_CONSTRAINTS"
"""Environment variable: a file of versions that pip has to install; else it takes the newest."""


def pythons() -> list[str]:
    return os.environ.get(PYTHONS_VARIABLE, "").split() or [sys.executable]


def run(*words: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """What the command writes; it has no variable of ours that would lead it to the repository."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        words, cwd=cwd, env=theirs | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def build(tree: Path, kind: str, folder: Path) -> Path:
    """A ``wheel`` or an ``sdist``, in *folder*, by the build backend that is installed here."""
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=tree)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the package, what it depends on, and nothing else."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *words: str | Path, **variables: str) -> str:
        """``python *words``, away from the repository, with every warning an error."""
        return run(self.python, "-W", "error", *words, cwd=self.folder, **variables)


def environment(
    folder: Path, package: Path, *more: str, python: str = sys.executable
) -> Environment:
    """With a wheel, or with an sdist, which pip builds with what it asks for.

    pip itself stays outside: that saves seconds, and nothing of it is in the environment.
    """
    run(python, "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet")
    options = ("--disable-pip-version-check", "--no-compile")
    run(*pip, *options, package, *more, cwd=ROOT, **constrained())
    return Environment(folder)


def constrained() -> dict[str, str]:
    """Variables for pip: one for what is installed, one for what builds it."""
    file = os.environ.get(CONSTRAINTS_VARIABLE)
    return {"PIP_CONSTRAINT": file, "PIP_BUILD_CONSTRAINT": file} if file else {}


def constraints() -> dict[str, str]:
    """The versions that have to be installed, by names in lower case."""
    file = os.environ.get(CONSTRAINTS_VARIABLE)
    lines = Path(file).read_text().splitlines() if file else []
    return {name.lower(): version for name, _, version in (each.partition("==") for each in lines)}
