"""``python -m docs.make_reference``: writes the pages, and removes those that are no more."""

from __future__ import annotations

from . import texts
from .contents import FOLDER


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    written = texts()
    for page in FOLDER.glob("*.md"):
        if page.name not in written:
            page.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
