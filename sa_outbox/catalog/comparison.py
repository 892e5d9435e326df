"""A committed catalogue and the program as it is now: what changed, and what that breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .change import Change
from .committed import Committed, CommittedType
from .containment import Comparison, Misfit, root_of
from .contents import contents_of
from .dialect import component_name
from .differences import Differences
from .document import described
from .relay_changes import relay_changes
from .wording import at_deploy, bump, instead, of_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..outbox import Outbox
    from .change import Protects
    from .contents import Contents, Entry


def compare(committed: Mapping[str, Any], outbox: Outbox) -> list[Change]:
    """What changed between a *committed* document of :func:`asyncapi` and the program, by subject;
    what breaks something first.

    Raises :class:`ConfigError` if the document is not one of ours.
    """
    return changes(committed, contents_of(outbox))


def changes(committed: Mapping[str, Any], contents: Contents) -> list[Change]:
    old = Committed(committed)
    new = Committed(described(contents, title=None, version="1.0.0"))
    found = list(_of_types(old, new, contents))
    found += relay_changes(old, new)
    found += _of_listeners(old, new)
    return sorted(found, key=lambda each: (each.protects is None, each.subject))


def _of_types(old: Committed, new: Committed, contents: Contents) -> Iterator[Change]:
    entries = {each.name: each for each in contents.entries}
    for name in sorted(old.types.keys() | new.types.keys()):
        if name not in old.types:
            yield Change(name, "new event type")
        elif name not in new.types:
            yield _removed(name, old, new)
        else:
            yield from _TypeChange(old, new, entries[name]).found()


def _removed(name: str, old: Committed, new: Committed) -> Change:
    still = tuple(new.readers(name, relays_too=False))
    # To those who got JSON, in the one version there was, nothing is different.
    asked = any(
        name in each.classes and new.wants(reader, name) for reader, each in old.listeners.items()
    )
    if not still or not (asked or old.types[name].upcasters):
        return Change(name, "the event type is gone")
    return Change(
        name,
        "its class is gone, and stored events of it are still read: as they are, without upcasters",
        "stored",
        still,
        "keep the class until retention has deleted its events, or exclude the event type from "
        f'on=, with "!{name}"',
    )


class _TypeChange:
    """One event type that is in both."""

    def __init__(self, old: Committed, new: Committed, entry: Entry) -> None:
        self._name, self._entry = entry.name, entry
        self._was: CommittedType = old.types[entry.name]
        self._is: CommittedType = new.types[entry.name]
        self._old, self._new = old, new
        self._old_readers = tuple(old.readers(entry.name))
        # A relay sends what is stored as it is, unless its function asks for the class.
        self._new_readers = tuple(new.readers(entry.name, relays_too=False))

    def found(self) -> Iterator[Change]:
        if self._was.typed and not self._is.typed:
            yield self._change(
                "its class is gone: its payload may be anything",
                "deploy",
                f'keep the class, with @event_type("{self._name}")',
            )
            return
        if not self._was.typed:
            if self._is.typed:
                yield Change(self._name, "it has a class now; events stored before had none")
            return
        yield from self._of_versions()
        if self._is.version == self._was.version:
            yield from self._of_payloads()

    def _of_versions(self) -> Iterator[Change]:
        was, now = self._was.version, self._is.version
        for version in self._was.readable:
            gap = self._is.gap(version)
            if version > now:
                what = f"stored events have version {version}, and the program knows {now}"
                yield self._change(what, "stored", f"go back to version={version}, or beyond it")
            elif gap is not None:
                what = f"stored events of version {version} can't be read: no upcaster from {gap}"
                fix = f'@upcaster("{self._name}", since={gap}), until retention has deleted every '
                yield self._change(what, "stored", f"{fix}event of version {version}")
        if now > was:
            sends = [each for each in self._old_readers if each.startswith("relay ")]
            what = f"version {was} is now {now}: deploy consumers before producers"
            if sends:
                what += f"; receivers of {', '.join(sends)} get the new form"
            yield Change(self._name, what)

    def _of_payloads(self) -> Iterator[Change]:
        component = component_name(self._name)
        before, after, writes = self._old.schemas, self._new.schemas, self._entry.writing
        read_then, read_now = root_of(component, before), root_of(component, after)
        stored = Comparison(before, after).misfits(read_then, read_now)
        written = Comparison(writes, before).misfits(root_of(component, writes), read_then)
        differences = list(Differences(before, after).between(read_then, read_now))
        for each in stored:
            yield self._misfit(each, of_stored(each), "stored")
        for each in written:
            yield self._misfit(each, at_deploy(each, differences), "deploy")
        known = {each.path for each in (*stored, *written)}
        for difference in differences:
            if difference.path not in known:
                yield Change(self._name, f"{difference.path}: {difference.text}")

    def _misfit(self, misfit: Misfit, text: str, protects: Protects) -> Change:
        cheaper = instead(misfit, stored=protects == "stored")
        fix = bump(self._name, self._is.version)
        return self._change(f"{misfit.path}: {text}", protects, fix, cheaper)

    def _change(
        self, what: str, protects: Protects, fix: str, cheaper: str | None = None
    ) -> Change:
        readers = self._old_readers if protects == "deploy" else self._new_readers
        return Change(self._name, what, protects, readers, fix, cheaper)


def _of_listeners(old: Committed, new: Committed) -> Iterator[Change]:
    for name in sorted(old.listeners.keys() | new.listeners.keys()):
        if name not in old.listeners:
            yield Change(name, "new listener: for the database, one that has handled nothing yet")
        elif name not in new.listeners:
            yield Change(name, "the listener is gone: what it has not handled stays unhandled")
        else:
            yield from _of_one_listener(name, old, new)


def _of_one_listener(name: str, old: Committed, new: Committed) -> Iterator[Change]:
    was, now = old.listeners[name], new.listeners[name]
    gone = sorted(each for each in old.types if was.wants(each) and not now.wants(each))
    for each in gone:
        yield Change(
            name,
            f"it no longer reads {each}: events that it has not handled yet, it never will",
            "stored",
            (name,),
            f'keep "{each}" in its on=, until it has handled those that are stored',
        )
    more = sorted(each for each in new.types if now.wants(each) and not was.wants(each))
    if more:
        what = f"it now reads {', '.join(more)}: deploy consumers before producers"
        yield Change(name, f"{what}, as those of the last release pass such events over")
    elif not gone and sorted(was.on) != sorted(now.on):
        yield Change(name, f"on= was {', '.join(was.on)} and is {', '.join(now.on)}")
