"""The workflow that publishes, and the forms for issues: valid, and careful with rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "releasing"
PAGE = (FOLDER / "index.md").read_text()
WORKFLOW: dict[str, Any] = yaml.safe_load((FOLDER / "release.yml").read_text())
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
FORMS = ("bug.yml", "feature.yml")


def test_a_tag_is_tested_then_built_then_published() -> None:
    # YAML reads the word on as a truth.
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # type: ignore[index]
    assert [(name, job.get("needs")) for name, job in JOBS.items()] == [
        ("test", None),
        ("build", "test"),
        ("publish", "build"),
    ]


def test_every_action_is_one_version() -> None:
    used = [step["uses"] for _, step in STEPS if "uses" in step]

    assert len(used) >= 5
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@v\d+\.\d+\.\d+", each)] == []


def test_a_job_has_only_the_rights_that_it_needs() -> None:
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "test": {"contents": "read"},
        "build": {"contents": "read", "id-token": "write", "attestations": "write"},
        "publish": {"id-token": "write"},
    }


def test_who_publishes_runs_no_code_of_the_repository_and_has_no_token() -> None:
    publish = [step for name, step in STEPS if name == "publish"]

    assert all(set(step) == {"uses", "with"} for step in publish)
    assert not any("checkout" in step["uses"] for step in publish)
    assert JOBS["publish"]["environment"] == "pypi"
    assert "secrets." not in (FOLDER / "release.yml").read_text()


def test_no_expression_is_put_into_a_shell() -> None:
    assert [step["run"] for _, step in STEPS if "${{" in step.get("run", "")] == []


def commands(job: dict[str, Any]) -> str:
    """What the shell runs, in every variant of the job."""
    variants = job.get("strategy", {}).get("matrix", {}).get("targets", [""])
    lines = "\n".join(step.get("run", "") for step in job["steps"])
    return "\n".join(lines.replace("$TARGETS", variant) for variant in variants)


def made(text: str) -> set[str]:
    """Targets of make."""
    return {
        target for words in re.findall(r"\bmake((?: [a-z-]+)+)", text) for target in words.split()
    }


def test_every_target_of_make_exists() -> None:
    targets = made("\n".join(map(commands, JOBS.values())) + PAGE)

    assert {"programs", "screenshots", "servers", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text()
    assert [each for each in targets if f"\n{each}:" not in makefile] == []


def test_a_release_is_tested_by_what_the_readme_says_it_is_tested_by() -> None:
    readme = (ROOT / "README.md").read_text()
    (claims,) = re.findall(r"^The tests run on .*?^$", readme, re.MULTILINE | re.DOTALL)
    targets = set(re.findall(r"\b(test(?:-[a-z]+)?)`", claims))

    assert targets == {"test", "test-lowest", "test-matrix", "test-packages"}
    assert [each for each in targets if not re.search(rf"[`\s]{each}`", PAGE)] == []
    assert targets - made(commands(JOBS["test"])) == set()
    assert "servers test-matrix" in commands(JOBS["test"])


def test_a_release_is_tested_on_every_python_that_the_package_names_and_on_the_next() -> None:
    (setup,) = [step for step in JOBS["test"]["steps"] if "setup-python" in step.get("uses", "")]
    pyproject = (ROOT / "pyproject.toml").read_text()
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', pyproject)

    versions = setup["with"]["python-version"].split()
    assert {*promised, "3.14"} == set(versions)
    assert versions[-1] == promised[-1], "the last is that of make test"


def test_a_release_skips_no_test_whose_program_can_be_installed() -> None:
    """GitHub's Ubuntu has Chromium. Whatever is missing after all fails the step that looks."""
    makefile = (ROOT / "Makefile").read_text()
    wanted = set(re.findall(r'\bmissing="(?:\$\$missing )?(\w+)"', makefile))
    before, looks, _ = commands(JOBS["test"]).partition('test -z "$(make programs')
    (installed,) = re.findall(r"apt-get install --yes (.+)", before)

    assert looks
    assert {*installed.split(), "chromium"} == wanted


def test_whoever_tests_has_the_whole_history_for_the_rolling_upgrade() -> None:
    (checkout,) = [step for step in JOBS["test"]["steps"] if "checkout" in step.get("uses", "")]

    assert checkout["with"]["fetch-depth"] == 0


@pytest.mark.parametrize("name", FORMS)
def test_a_form_asks_questions(name: str) -> None:
    form = yaml.safe_load((FOLDER / name).read_text())

    assert {"name", "description", "body"} <= set(form)
    assert {each["type"] for each in form["body"]} <= {"textarea", "input", "dropdown", "markdown"}
    names = [each["id"] for each in form["body"]]
    assert len(names) == len(set(names)) >= 3


def test_the_page_says_where_each_file_goes() -> None:
    files = {path.name for path in FOLDER.glob("*.yml")}

    assert {*FORMS, "release.yml"} == files
    assert [each for each in files if f"docs/releasing/{each}`" not in PAGE] == []
