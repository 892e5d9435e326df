"""The README on a package index: every link leads somewhere, and it can be rendered."""

from __future__ import annotations

import re
import shutil
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest
from readme_renderer import markdown

from hatch_build import readme_for_an_index
from tests.support.packages import ROOT, build

from .conftest import Packages

SOURCE = "https://host.test/owner/name"
README = (ROOT / "README.md").read_text()
ADDRESS = re.compile(r'(?:href|src)="([^"]*)"')


def description(wheel: Path) -> str:
    with ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith("/METADATA"))
        text = message_from_string(archive.read(name).decode()).get_payload()
    assert isinstance(text, str)
    return text


def addresses(text: str) -> list[str]:
    """As the index renders it, with the index's own program."""
    html = markdown.render(text)
    assert html is not None
    return ADDRESS.findall(html)


def relative(text: str) -> list[str]:
    """Headings have anchors, which lead to themselves."""
    return [each for each in addresses(text) if not each.startswith(("https://", "#"))]


@pytest.fixture(scope="module")
def with_a_source(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The description after somebody has filled in the one entry that asks for it."""
    folder = tmp_path_factory.mktemp("with_a_source")
    tree = shutil.copytree(packages.unpacked, folder / "tree")
    (tree / "PKG-INFO").unlink()  # else the backend repeats what the source distribution says
    configuration = tree / "pyproject.toml"
    asks = re.compile(r'^# Source = ".*"$', re.MULTILINE)
    text, filled_in = asks.subn(f'Source = "{SOURCE}/"', configuration.read_text())
    assert filled_in == 1
    configuration.write_text(text)
    return description(build(tree, "wheel", folder))


def test_without_an_address_links_are_text_and_pictures_are_left_out(packages: Packages) -> None:
    text = description(packages.wheel)

    assert relative(text) == []
    assert "Guarantees" in text
    assert "![" not in text


def test_with_an_address_every_link_leads_to_a_file_of_the_release(with_a_source: str) -> None:
    ours = [each for each in addresses(with_a_source) if each.startswith(SOURCE)]
    files = [re.fullmatch(rf"{SOURCE}/(blob|raw)/v[^/]+/([^#]+)(#.*)?", each) for each in ours]

    assert len(ours) > 20
    assert relative(with_a_source) == []
    assert [each for each in files if each is None or not (ROOT / each[2]).is_file()] == []


def test_with_an_address_the_dashboard_is_seen(with_a_source: str) -> None:
    pictures = re.findall(r'<img [^>]*src="([^"]*)"', markdown.render(with_a_source) or "")

    assert [each for each in pictures if each.startswith(f"{SOURCE}/raw/v")] == pictures
    assert [each.rpartition("/")[2] for each in pictures] == ["dashboard.png"]


def test_code_and_addresses_of_others_stay_as_they_are() -> None:
    text = "```python\nx = a[1](b)\n```\n[a](https://x.test) [b](#b)\n"

    assert readme_for_an_index(text, files="f/", pictures="p/") == text
    assert readme_for_an_index(text, files="", pictures="") == text


def test_nothing_but_links_and_pictures_is_changed() -> None:
    def without_addresses(text: str) -> str:
        return re.sub(r"\]\([^)]*\)", "]()", text)

    changed = readme_for_an_index(README, files="f/", pictures="p/")

    assert changed != README
    assert without_addresses(changed) == without_addresses(README)
