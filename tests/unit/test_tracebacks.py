"""The traceback of an error: who it leads to, and whatever the error is, it has an end."""

from __future__ import annotations

import json
import linecache
import sys
from pathlib import Path
from time import process_time
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.policy.error.frames import Frame, frames_of
from sa_outbox.policy.error.masking import MAX_MESSAGE
from sa_outbox.policy.error.tracebacks import (
    MAX_ERRORS,
    MAX_TRACEBACK,
    Traceback,
    traceback_of,
    traceback_text,
)
from sa_outbox.policy.failure import describe

SECRET = "4111-1111-1111-1111"
HERE = "test_tracebacks.py"
LONGEST = 60_000
"""Characters of a traceback as JSON: its texts, each character escaped, and the names of fields."""


def failing() -> NoReturn:
    card = SECRET
    raise KeyError(card)


def caught(call: Any, *arguments: Any) -> BaseException:
    try:
        call(*arguments)
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError


def names(found: Traceback) -> list[tuple[str, str]]:
    return [(each.relation, each.error) for each in found]


def document(error: BaseException) -> str:
    """As it is written to the database; PostgreSQL takes it, and there is an end to it."""
    text = json.dumps(describe(error, attempt=1).as_json())
    plain = json.dumps(json.loads(text), ensure_ascii=False)
    plain.encode()  # no lone surrogate
    assert "\\u0000" not in plain.replace("\\\\", "")
    assert len(text) < LONGEST + 6 * MAX_MESSAGE
    return text


class TestFrames:
    def test_a_frame_is_its_file_line_function_and_code_and_no_variable(self) -> None:
        (found,) = traceback_of(caught(failing))

        first, last = found.steps
        assert (first.function, first.code) == ("caught", "call(*arguments)")
        assert last._replace(line=0) == (
            f"tests/unit/{HERE}" if __name__ == "tests.unit.test_tracebacks" else HERE,
            0,
            "failing",
            "raise KeyError(card)",
        )
        assert last.line == failing.__code__.co_firstlineno + 2
        assert SECRET not in document(caught(failing)).replace(f"'{SECRET}'", "")

    @pytest.mark.parametrize(
        ("path", "module", "file"),
        [
            ("/srv/jane/shop/billing.py", "shop.billing", "shop/billing.py"),
            ("/srv/jane/shop/__init__.py", "shop", "shop/__init__.py"),
            ("/srv/jane/run.py", "__main__", "run.py"),
            ("/srv/jane/app/billing.py", "shop.billing", "billing.py"),
            ("C:\\srv\\jane\\shop\\billing.py", "shop.billing", "shop/billing.py"),
            ("/srv/jane/__init__.py", "other", "__init__.py"),
            ("/x/lib.cpython-311.so", "shop.lib", "lib.cpython-311.so"),
            ("<string>", "shop", "<string>"),
            ("", "", ""),
        ],
    )
    def test_a_file_is_named_by_its_place_in_the_program(
        self, path: str, module: str, file: str
    ) -> None:
        assert Frame(path, module, 1, "f", {}).file == file

    @given(st.text(), st.text())
    def test_no_part_of_a_path_is_shown_that_the_module_does_not_name(
        self, path: str, module: str
    ) -> None:
        shown = Frame(f"/srv/jane{path}/x.py", module, 1, "f", {}).file

        assert "jane" not in shown or "jane" in module

    def test_the_consumers_own_frames_are_left_out(self) -> None:
        from sa_outbox.consumer import handler  # noqa: PLC0415 - its path

        place = str(Path(handler.__file__).parent / "call.py")
        scope: dict[str, Any] = {"failing": failing}
        exec(compile("def call():\n    failing()", place, "exec"), scope)

        assert [each.name for each in frames_of(caught(scope["call"]))] == ["caught", "failing"]

    def test_of_a_thousand_frames_both_ends_are_kept(self) -> None:
        def deep(n: int) -> None:
            if n:
                deep(n - 1)
            failing()

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(3000)
        try:
            error = caught(deep, 1000)
        finally:
            sys.setrecursionlimit(limit)
        (found,) = traceback_of(error)

        assert (found.steps[0].function, found.steps[-1].function) == ("caught", "failing")
        assert len(found.steps) + found.omitted == 1003
        shown = traceback_text([found.as_json()])
        assert shown.count(f"({found.omitted} frames are left out here)") == 1
        assert shown.index("in caught") < shown.index("left out") < shown.index("in failing")
        document(error)

    def test_the_innermost_frames_have_precedence(self) -> None:
        long = "x" * 300
        scope: dict[str, Any] = {"failing": failing}
        code = "".join(
            f"def {long}{n}(): {f'{long}{n - 1}' if n else 'failing'}()\n" for n in range(28)
        )
        exec(compile(code, "wide.py", "exec"), scope)
        linecache.cache["wide.py"] = (1, None, code.splitlines(keepends=True), "wide.py")
        (found,) = traceback_of(caught(scope[f"{long}27"]))
        del linecache.cache["wide.py"]

        texts = [text for step in found.steps for text in (step.file, step.function, step.code)]
        assert len("".join(texts)) <= MAX_TRACEBACK
        assert found.steps[-1].function == "failing"
        assert 5 < len(found.steps) == 30 - found.omitted
        assert traceback_text([found.as_json()]).startswith(f"  ({found.omitted} frames are left")


class TestChains:
    def test_causes_contexts_and_members_are_told_apart(self) -> None:
        members = [caught(failing), OSError(SECRET)]

        def group() -> None:
            try:
                failing()
            except KeyError as cause:
                try:
                    int("x")
                except ValueError:
                    raise BaseExceptionGroup(SECRET, members) from cause

        found = traceback_of(caught(group))

        assert names(found) == [
            ("", "ExceptionGroup"),
            ("member", "KeyError"),
            ("member", "OSError"),
            ("cause", "KeyError"),
        ]
        context = traceback_of(caught(failing_in_handling))
        assert names(context) == [("", "ZeroDivisionError"), ("context", "KeyError")]
        shown = traceback_text([each.as_json() for each in found])
        assert SECRET not in shown
        assert shown.endswith("\nExceptionGroup")

    def test_rings_and_long_chains_have_an_end(self) -> None:
        one, other = ValueError(), KeyError()
        one.__cause__, other.__cause__ = other, one
        last: BaseException = one
        for _ in range(1000):
            following = OSError()
            following.__cause__ = last
            last = following
        wide = ExceptionGroup("wide", [ValueError()] * 100_000)
        deep: Exception = ValueError()
        for _ in range(2000):
            deep = ExceptionGroup("deep", [deep])

        assert names(traceback_of(one)) == [("", "ValueError"), ("cause", "KeyError")]
        for error in (last, wide, deep):
            assert len(traceback_of(error)) <= MAX_ERRORS
            document(error)

    def test_a_class_that_raises_whatever_is_asked_is_described(self) -> None:
        def refuse(_self: object) -> NoReturn:
            raise RuntimeError

        asked = ("__traceback__", "__cause__", "__context__", "exceptions", "code")
        members = {name: property(refuse) for name in asked} | {"__str__": refuse}
        kind = type("Kind", (type,), {"__module__": property(refuse)})
        odd: BaseException = kind("Odd", (ExceptionGroup,), members)("x", [ValueError()])

        found = describe(odd, attempt=1)

        assert (found.error, found.code, len(found.traceback)) == ("Odd", "Odd", 1)
        assert "RuntimeError" in found.message
        document(odd)


def failing_in_handling() -> None:
    try:
        failing()
    except KeyError:
        _ = 1 / 0


class TestMasks:
    def test_what_an_errors_text_does_not_show_is_not_in_a_line_of_code(self) -> None:
        def connect() -> None:
            _ = 1 / 0, "password=hunter2"

        error = caught(connect)

        assert "hunter2" not in document(error)
        assert "***" in traceback_of(error)[0].steps[-1].code

    def test_a_mask_over_several_lines_leaves_the_others_where_they_are(self) -> None:
        def key() -> None:
            _ = 1 / 0, "-----BEGIN PRIVATE KEY-----", "abc"

        (found,) = traceback_of(caught(key))

        assert [each.function for each in found.steps] == [
            "caught",
            "TestMasks." + key.__qualname__.split(".", 1)[1],
        ]
        assert "abc" not in document(caught(key))

    def test_the_users_function_has_the_last_word_whatever_it_does(self) -> None:
        def raising(_: str) -> NoReturn:
            raise RuntimeError(SECRET)

        shown = traceback_of(caught(failing), lambda text: text.replace("failing", "(name)"))
        nothing = traceback_of(caught(failing), lambda _: "gone")
        failed = traceback_of(caught(failing), raising)

        assert shown[0].steps[-1].function == "(name)"
        assert nothing[0].steps[-1] == ("gone", nothing[0].steps[-1].line, "gone", "gone")
        assert failed[0].error == "(redact failed: RuntimeError)"

    @pytest.mark.parametrize("text", ["x\x00", "\ud800", "a\nb", "x" * 1_000_000, "\x00" * 100_000])
    def test_names_of_any_kind_can_be_stored(self, text: str) -> None:
        scope: dict[str, Any] = {"failing": failing, "__name__": text}
        code = compile("def call(): failing()", "x.py", "exec")
        exec(code, scope)
        call = scope["call"]
        file = text.replace("\x00", "0")
        call.__code__ = call.__code__.replace(co_filename=file, co_qualname=text)

        document(caught(call))

    def test_it_takes_a_few_milliseconds_at_most(self) -> None:
        def deep(n: int) -> None:
            if n:
                deep(n - 1)
            raise ValueError("x" * 10_000_000)

        error = caught(deep, 500)
        describe(error, attempt=1)  # the files are read
        began = process_time()
        for _ in range(10):
            describe(error, attempt=1)
        assert process_time() - began < 1
