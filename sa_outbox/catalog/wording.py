"""What a misfit means for whom, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .containment import Misfit
    from .differences import Difference


def of_stored(misfit: Misfit) -> str:
    """The new release reads an event that the old one has stored."""
    match misfit.kind:
        case "missing":
            return "required, and stored events may lack it"
        case "type":
            return f"stored as {misfit.given}, read as {misfit.accepted}"
        case "value":
            return f"stored events may have {misfit.given}, which is no longer accepted"
        case "refused":
            return "stored events may have it, and the class allows no other fields"
        case "others":
            return "no other fields are allowed now, and stored events may have some"
        case "limit":
            return f"stored with {misfit.given}, read with {misfit.accepted}"
        case "unjudged":
            return f"{misfit.given} of its schema changed, and can't be judged"


def at_deploy(misfit: Misfit, differences: Sequence[Difference]) -> str:
    """A consumer of the old release reads an event that the new one has written."""
    match misfit.kind:
        case "missing":
            gone = (
                "no longer written" if misfit.given == "is missing" else "no longer always written"
            )
            return f"{gone}, and required by the old release{_renamed(misfit, differences)}"
        case "type":
            return f"now written as {misfit.given}, read by the old release as {misfit.accepted}"
        case "value":
            return f"may now be {misfit.given}, which the old release does not know"
        case "refused":
            return "now written, and the old release allows no other fields"
        case "others":
            return "other fields may now be written, and the old release allows none"
        case "limit":
            return (
                f"now written with {misfit.given}, read by the old release with {misfit.accepted}"
            )
        case "unjudged":
            return f"{misfit.given} of its schema changed, and can't be judged"


def _renamed(misfit: Misfit, differences: Sequence[Difference]) -> str:
    """Whether one field is gone and one is new in the same place."""
    parent = misfit.path.rpartition(".")[0]
    new = [
        each.path
        for each in differences
        if each.text.startswith("new, ") and each.path.rpartition(".")[0] == parent
    ]
    return f". Renamed to {new[0].rpartition('.')[2]}?" if len(new) == 1 else ""


def bump(event_type: str, version: int) -> str:
    """What always helps."""
    return (
        f'version={version + 1} and @upcaster("{event_type}", since={version}), and consumers are '
        "deployed before producers"
    )


def instead(misfit: Misfit, *, stored: bool) -> str | None:
    """What helps with less, for this one alone."""
    if misfit.kind == "missing":
        return "give it a default" if stored else "keep it, with a default, for one release more"
    if misfit.kind == "value" and stored:
        return "keep accepting it"
    return None
