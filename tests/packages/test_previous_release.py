"""Which release the rolling upgrade begins at, and what it says when it knows none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.revisions import ITSELF, PREVIOUS_VARIABLE, git, previous_release


class Repository:
    """Of empty commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> None:
        somebody = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        git(self.folder, *somebody, "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", *words)

    def commit(self, *tags: str) -> None:
        self.git("commit", "--quiet", "--allow-empty", "--message=a change")
        for tag in tags:
            self.git("tag", tag)

    @property
    def previous(self) -> str | None:
        return previous_release(self.folder).revision


@pytest.fixture(autouse=True)
def _nobody_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PREVIOUS_VARIABLE, raising=False)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Two releases, and no change since."""
    made = Repository(tmp_path)
    made.commit("v0.1.0")
    made.commit()
    made.commit("v0.2.0")
    return made


def test_on_the_tag_of_a_release_the_previous_one_is_the_tag_before(repository: Repository) -> None:
    assert repository.previous == "v0.1.0"


def test_after_a_release_the_previous_one_is_that(repository: Repository) -> None:
    repository.commit()

    assert repository.previous == "v0.2.0"


def test_a_release_with_two_tags_is_not_its_own_predecessor(repository: Repository) -> None:
    repository.git("tag", "v0.2.0rc3")

    assert repository.previous == "v0.1.0"


def test_a_release_comes_after_its_candidates_and_ten_after_nine(repository: Repository) -> None:
    repository.commit("v0.10.0rc1")
    repository.commit("v0.10.0")
    repository.commit()

    assert repository.previous == "v0.10.0"


def test_a_tag_that_is_no_version_is_not_a_release(repository: Repository) -> None:
    repository.commit("nightly", "vendored")
    repository.commit()

    assert repository.previous == "v0.2.0"


def test_a_release_that_only_a_merged_branch_has_is_found(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "fixes")
    repository.commit("v0.2.1")
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "--message=merge", "fixes")
    repository.git("tag", "v0.3.0")

    assert repository.previous == "v0.2.1"


def test_a_chosen_revision_wins(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREVIOUS_VARIABLE, "HEAD~2")

    assert repository.previous == "HEAD~2"
    assert PREVIOUS_VARIABLE in previous_release(repository.folder).about


def test_the_first_release_says_that_there_was_none(tmp_path: Path) -> None:
    Repository(tmp_path).commit("v0.1.0")

    previous = previous_release(tmp_path)

    assert previous.revision is None
    assert previous.about.startswith(ITSELF)
    assert "shallow" not in previous.about


def test_a_shallow_checkout_says_so_and_what_to_do(repository: Repository, tmp_path: Path) -> None:
    repository.git("clone", "--quiet", "--depth=1", f"file://{tmp_path}", "shallow")

    previous = previous_release(tmp_path / "shallow")

    assert previous.revision is None
    assert previous.about.endswith("git fetch --unshallow --tags")


def test_what_is_no_repository_has_no_previous_release(tmp_path: Path) -> None:
    previous = previous_release(tmp_path)

    assert previous.revision is None
    assert "not a git repository" in previous.about
