"""Writes docs/reference/: public names with their docstrings, commands with their options.

=================  =================================================================================
``contents.py``    which page has which modules
``names.py``       what is public in a module
``pages.py``       a page of names: signatures, docstrings, fields, methods
``signatures.py``  how something is called
``prose.py``       a docstring as Markdown
``commands.py``    the pages of the commands
=================  =================================================================================

Python is read, not run (griffe): so fields have the text below them, and types are as they were
written. Commands are asked (click). Start it with ``make reference``; a test says when that is due.
"""

from .commands import command_pages
from .contents import PAGES
from .pages import index_page, page_of


def texts() -> dict[str, str]:
    """The pages by the names of their files."""
    written = {page.file: page_of(page) for page in PAGES} | command_pages()
    return {"index.md": index_page(written)} | written
