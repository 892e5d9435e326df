"""What is kept of an error: whatever it is, it can be stored, and it is never too much."""

from __future__ import annotations

import json
from base64 import b64encode
from time import process_time
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from sa_outbox.errors import HandlerTimeout, Reject
from sa_outbox.policy.error.masking import MAX_MESSAGE, clean
from sa_outbox.policy.error.tracebacks import Raised, fingerprint
from sa_outbox.policy.failure import MAX_CAUSES, Failure, describe

WILD_TEXT = st.text(st.characters())
"""With U+0000 and lone surrogates."""
HARMLESS_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00:=@"))
"""PostgreSQL can store it, and no secret is announced in it."""
SECRET = "hunter2"
LONGEST = 6 * MAX_MESSAGE + 50
"""Every character escaped, and how many there were."""


def is_storable(text: str) -> bool:
    """In a text column, and in a jsonb."""
    text.encode()  # no lone surrogate
    return "\x00" not in text


def check(failure: Failure) -> None:
    """PostgreSQL takes it, and there is an end to it."""
    document = failure.as_json()
    texts = [failure.code, failure.error, failure.message, *failure.causes]
    del document["traceback"]  # tests/unit/test_tracebacks.py
    assert all(map(is_storable, texts))
    assert json.loads(json.dumps(document)) == {
        **document,
        **({"causes": list(failure.causes)} if failure.causes else {}),
    }
    assert len(failure.message) <= LONGEST
    assert len(json.dumps(document)) < 200_000


def raised(error: BaseException, cause: BaseException) -> BaseException:
    """As ``raise error from cause`` leaves it."""
    error.__cause__ = cause
    return error


class TestDescription:
    def test_it_has_the_class_the_code_and_the_text(self) -> None:
        assert describe(ValueError("no such order"), attempt=3) == Failure(
            attempt=3,
            code="ValueError",
            error="ValueError",
            message="no such order",
            traceback=(Raised("ValueError", "", ()),),
        )

    def test_an_error_with_a_code_is_known_by_it(self) -> None:
        failure = describe(HandlerTimeout("late"), attempt=1)

        assert failure.code == "handler-timeout"
        assert failure.error == "sa_outbox.errors.HandlerTimeout"

    @pytest.mark.parametrize("code", [404, None, "", b"x", ["a"]], ids=repr)
    def test_a_code_that_is_no_text_is_not_taken(self, code: object) -> None:
        error = ValueError()
        error.code = code  # type: ignore[attr-defined]  # as SystemExit and HTTP errors have

        assert describe(error, attempt=1).code == "ValueError"

    def test_a_code_is_short_and_clean(self) -> None:
        error = ValueError()
        error.code = "a\x00" + "b" * 1_000_000  # type: ignore[attr-defined]  # a user's

        code = describe(error, attempt=1).code

        assert code.startswith("a\\u0000b")
        assert len(code) == 100

    def test_a_code_that_raises_is_none(self) -> None:
        class Odd(Exception):
            @property
            def code(self) -> NoReturn:
                raise RuntimeError

        assert describe(Odd(), attempt=1).code == "Odd"

    @given(st.text() | WILD_TEXT, WILD_TEXT)
    def test_it_can_be_stored_whatever_the_text_is(self, text: str, cause: str) -> None:
        error = raised(ValueError(text), KeyError(cause))

        check(describe(error, attempt=1))

    @given(HARMLESS_TEXT)
    def test_text_that_can_be_stored_is_kept_as_it_is(self, text: str) -> None:
        assert clean(text) == text

    def test_as_json_it_has_causes_only_if_there_are(self) -> None:
        assert describe(ValueError("x"), attempt=1).as_json() == {
            "attempt": 1,
            "code": "ValueError",
            "error": "ValueError",
            "message": "x",
            "fingerprint": fingerprint("ValueError"),
            "traceback": [{"type": "ValueError", "frames": []}],
        }


class Mute:
    def __str__(self) -> NoReturn:
        raise RuntimeError


class TestBadErrors:
    def test_a_text_of_50_megabytes_is_cut_and_its_length_told(self) -> None:
        failure = describe(ValueError("x" * 50_000_000), attempt=1)

        check(failure)
        assert failure.message == "x" * MAX_MESSAGE + " ... (50,000,000 characters)"

    def test_50_megabytes_of_nul_are_bounded_too(self) -> None:
        check(describe(ValueError("\x00" * 50_000_000), attempt=1))

    def test_nul_and_lone_surrogates_are_spelled_out(self) -> None:
        assert clean("a\x00b\ud800c\udfff") == "a\\u0000b\\ud800c\\udfff"

    def test_bytes_that_are_no_utf8_can_be_stored(self) -> None:
        check(describe(OSError(b"\xff\xfe".decode("utf-8", "surrogateescape")), attempt=1))

    @pytest.mark.parametrize(
        "broken", [RuntimeError("no"), RecursionError(), TypeError()], ids=repr
    )
    def test_a_text_that_raises_is_told_by_what_it_raised(self, broken: Exception) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise broken

        failure = describe(Odd(), attempt=1)

        check(failure)
        assert type(broken).__name__ in failure.message

    def test_a_text_that_is_no_text_is_told_too(self) -> None:
        class Odd(Exception):
            def __str__(self) -> Any:
                return 5  # noqa: PLE0307 - that is the point

        assert "TypeError" in describe(Odd(), attempt=1).message

    def test_a_text_that_is_more_than_text_is_taken_for_its_letters(self) -> None:
        class Words(str):
            __slots__ = ()

            def __getitem__(self, key: object) -> NoReturn:
                raise RuntimeError

            __len__ = __bool__ = __getitem__  # type: ignore[assignment]  # that is the point

        class Odd(Exception):
            code = Words("odd")

            def __str__(self) -> str:
                return Words("letters")

        failure = describe(Odd(), attempt=1)

        assert (failure.code, failure.message) == ("odd", "letters")

    @pytest.mark.parametrize(
        "module", [None, Mute(), "", "a\x00\ud800"], ids=["none", "mute", "empty", "odd"]
    )
    def test_a_module_of_any_kind_can_be_stored(self, module: Any) -> None:
        class Odd(Exception):
            pass

        Odd.__module__ = module

        check(describe(Odd(), attempt=1))

    def test_a_class_name_can_be_stored_and_has_an_end(self) -> None:
        class Odd(Exception):
            pass

        Odd.__qualname__ = "a\x00b\ud800" + "c" * 1_000_000
        Odd.__name__ = "c" * 1_000_000

        failure = describe(Odd(), attempt=1)

        check(failure)
        assert len(failure.error) < 10_000
        assert len(failure.code) <= 100


class TestCauses:
    def test_they_are_kept_nearest_first(self) -> None:
        error = raised(ValueError("a"), raised(KeyError("b"), OSError("c")))

        assert describe(error, attempt=1).causes == ("KeyError: 'b'", "OSError: c")

    def test_an_error_during_the_handling_of_another_has_it_as_its_cause(self) -> None:
        error = ValueError("second")
        error.__context__ = KeyError("first")

        assert describe(error, attempt=1).causes == ("KeyError: 'first'",)

    def test_what_was_said_not_to_matter_is_left_out(self) -> None:
        """By ``raise ... from None``."""
        error = ValueError("second")
        error.__context__ = KeyError("first")
        error.__cause__ = None

        assert describe(error, attempt=1).causes == ()

    def test_a_ring_of_causes_has_an_end(self) -> None:
        one, other = ValueError("one"), KeyError("other")
        one.__cause__, other.__cause__ = other, one

        assert describe(one, attempt=1).causes == ("KeyError: 'other'",)

    def test_an_error_that_caused_itself_has_no_causes(self) -> None:
        error = ValueError()
        error.__cause__ = error

        assert describe(error, attempt=1).causes == ()

    def test_only_the_nearest_are_kept_and_of_each_only_the_beginning(self) -> None:
        error: BaseException = ValueError("x" * 10**6)
        for _ in range(1_000):
            error = raised(ValueError("x" * 10_000), error)

        failure = describe(error, attempt=1)

        check(failure)
        assert len(failure.causes) == MAX_CAUSES
        assert all(len(cause) <= 1_100 for cause in failure.causes)

    def test_a_cause_without_a_text_is_told_like_an_error_without_one(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        assert "RuntimeError" in describe(raised(ValueError(), Odd()), attempt=1).causes[0]

    def test_causes_that_raise_are_none(self) -> None:
        class Odd(Exception):
            @property
            def __cause__(self) -> NoReturn:  # type: ignore[override]  # that is the point
                raise RuntimeError

        assert describe(Odd("x"), attempt=1).causes == ()

    def test_a_cause_that_is_no_error_is_none(self) -> None:
        class Odd(Exception):
            __cause__ = "a text"  # type: ignore[assignment]  # that is the point

        assert describe(Odd("x"), attempt=1).causes == ()

    def test_a_cause_that_counts_as_false_is_a_cause(self) -> None:
        class NoErrors(Exception):
            def __len__(self) -> int:
                return 0

        causes = describe(raised(ValueError(), NoErrors("none")), attempt=1).causes

        assert len(causes) == 1

    def test_a_cause_that_does_not_know_whether_it_is_true_is_one(self) -> None:
        class Odd(Exception):
            def __bool__(self) -> bool:
                raise RuntimeError

        assert len(describe(raised(ValueError(), Odd()), attempt=1).causes) == 1


class TestSecrets:
    @pytest.mark.parametrize(
        "text",
        [
            f"postgresql://shop:{SECRET}@db/shop",
            f"can't connect to postgresql+asyncpg://shop:{SECRET}@db:5432/shop?ssl=1",
            f"redis://:{SECRET}@cache",
            f"HTTPS://{SECRET}@api.example.com/",
            f"amqps://user:{SECRET}@host and postgres://user:{SECRET}@host",
            f"password={SECRET}",
            f"password = {SECRET}, user = shop",
            f"PASSWORD: {SECRET}",
            f"PGPASSWORD={SECRET} psql",
            f"host=db password='{SECRET} and more {SECRET}' user=shop",
            f"{{'password': '{SECRET}'}}",
            f'{{"db_password": "{SECRET}"}}',
            f"passwd:{SECRET}",
            f"client_secret={SECRET}",
            f"aws_secret_access_key = {SECRET}",
            f"token: {SECRET}",
            f"https://api/?access_token={SECRET}&page=2",
            f"api_key={SECRET}",
            f"X-Api-Key: {SECRET}",
            f"apikey={SECRET};",
            f"Authorization: Bearer {SECRET}",
            f"authorization=Basic {SECRET}",
            f"AUTHORIZATION : {SECRET}",
            f"https://bucket/a?X-Amz-Signature={SECRET}&page=2",
            f"https://bucket/a?X-Amz-Credential={SECRET}",
            f"https://blob/a?sv=1&sig={SECRET}",
            f"https://maps/?key={SECRET}#top",
            f"aws_access_key_id={SECRET}",
            f"'private_key': '{SECRET}'",
            f"{{b'password': b'{SECRET} and more {SECRET}'}}",
            f'{{"password": "a\\"{SECRET} and more"}}',
            f"password='\n{SECRET}\n{SECRET}\n'",
            f"password:\n  {SECRET}",
            f"Cookie: a=1; session={SECRET}",
            f"{{'Set-Cookie': 'session={SECRET}; Path=/'}}",
            f"sent with Bearer eyJ{SECRET}.{SECRET}abcdefghijk",
            f"it was eyJhbGciOiJIUzI1.{SECRET}abcdefgh.{SECRET}-_x",
            f"-----BEGIN RSA PRIVATE KEY-----\nMII{SECRET}\n{SECRET}==\n-----END RSA",
            f"-----BEGIN PRIVATE KEY-----\nMII{SECRET}\n{SECRET} and no end",
            f"[SQL: INSERT INTO users VALUES (%s)]\n[parameters: ('{SECRET}', [1])]\n(Background",
            f"[SQL: SELECT 1]\n[parameters: ('cut off {SECRET}",
            f'violates unique "u"\nDETAIL:  Key (email)=({SECRET}) already exists.',
            f"violates check\nDETAIL:  Failing row contains (1, a\n{SECRET}).\nHINT:  look",
            f'CONTEXT:  COPY users, line 1, column id: "{SECRET}"',
            f"CONTEXT:  unnamed portal parameter $1 = '{SECRET}'",
            f'invalid input syntax for type integer: "{SECRET}"',
            f'invalid input value for enum color: "{SECRET}"',
            f"invalid input for query argument $1: '{SECRET}' (expected str, got int)",
            f"invalid input for query argument $2: '{SECRET} (an integer is required)",
            f"Input should be a number [type=x, input_value='{SECRET}', input_type=str]",
            f"Input should be a number [type=x, input_value={{'a': [1], 'b': '{SECRET}'}}",
            f"the key is whsec_{SECRET}MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            f"sk_live_{SECRET}abcdefgh was refused",
            f"no access for ghp_{SECRET}abcdefghijklmnopqrstuvwxyz",
            f"xoxb-{SECRET}-abcdef",
            f"sk-proj-{SECRET}abcdefghijklmnop",
            f"AccountName=shop;AccountKey={SECRET}==;EndpointSuffix=core.windows.net",
            f"SharedAccessKeyName=send;SharedAccessKey={SECRET}=;EntityPath=orders",
            f"BlobEndpoint=https://shop.example/;SharedAccessSignature=sig={SECRET}&sv=2024",
            f"account_key: {SECRET}",
        ],
        ids=lambda text: text.replace(SECRET, "..."),
    )
    def test_it_is_taken_out(self, text: str) -> None:
        kept = clean(f"it failed: {text} (tried twice)")

        assert SECRET not in kept
        assert "***" in kept
        assert kept.startswith("it failed: ")

    @pytest.mark.parametrize(
        "text",
        [
            f"{{'Authorization': 'Bearer {SECRET}'}}",
            f'{{"Authorization": "Bearer {SECRET}"}}',
            f"Authorization: Token {SECRET}",
        ],
        ids=lambda text: text.replace(SECRET, "..."),
    )
    def test_it_is_taken_out_of_headers_as_they_are_printed(self, text: str) -> None:
        assert SECRET not in clean(f"it failed: {text}")

    def test_it_is_taken_out_of_causes(self) -> None:
        error = raised(ValueError(), ValueError(f"password={SECRET}"))

        assert SECRET not in "".join(describe(error, attempt=1).causes)

    def test_it_is_taken_out_of_a_long_text(self) -> None:
        assert SECRET not in clean("x" * 7_990 + f" password={SECRET} " + "x" * 10**6)

    def test_half_a_secret_at_the_cut_is_not_kept_when_much_before_it_was_taken_out(self) -> None:
        long = f"redis://{'x' * 400}@cache "
        for spare in range(40):
            text = long * 38 + "y" * (2 * MAX_MESSAGE - 38 * len(long) - 40 + spare)
            text += f" redis://joe:{SECRET}"
            assert SECRET not in clean(text[: 2 * MAX_MESSAGE] + "@cache" + "z" * 10**5)

    @pytest.mark.parametrize(
        "part",
        [
            "eyJ-",
            "eyJaaaaaaaaaa.",
            "password=",
            'password="\\',
            "a://",
            "?a_",
            "&key=",
            "-----BEGIN PRIVATE KEY-----",
            "bearer ",
            "cookie: ",
            "authorization=b'\\'",
            "-",
        ],
    )
    def test_no_text_takes_long(self, part: str) -> None:
        """A second of the event loop, it would be, with a repeat that has no bound."""
        began = process_time()

        clean(part * (50_000 // len(part)))

        assert process_time() - began < 0.5

    @pytest.mark.parametrize(
        "text",
        [
            "order 5 at 10:30 was not found",
            "a line\nand another\r\n\tand a third",
            "Bearer authentication required",
            "the key has no owner, signature of f(a) unknown",
            "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
            "https://example.com/path?page=2",
            "mail to someone@example.com",
            "KeyError: 'order_id'",
            "the token has expired",
        ],
    )
    def test_what_is_no_secret_is_kept(self, text: str) -> None:
        assert clean(text) == text

    def test_credentials_after_basic_are_taken_out_and_english_is_not(self) -> None:
        coded = b64encode(f"shop:{SECRET}".encode()).decode()

        assert clean(f"sent Basic {coded}, got 401") == "sent Basic ***, got 401"
        assert clean("some basic information") == "some basic information"

    def test_what_pydantic_quotes_is_taken_out_and_what_it_says_is_kept(self) -> None:
        class Card(BaseModel):
            number: int
            owner: str

        with pytest.raises(ValidationError) as caught:
            Card.model_validate({"number": SECRET, "owner": [SECRET]})

        kept = describe(caught.value, attempt=1).message

        assert SECRET not in kept
        assert "type=int_parsing" in kept
        assert "input_type=str" in kept
        assert "owner" in kept

    def test_of_a_detail_the_columns_are_kept(self) -> None:
        kept = clean("duplicate\nDETAIL:  Key (tenant, email)=(1, a@b) already exists.\nHINT:  no")

        assert kept == "duplicate\nDETAIL:  Key (tenant, email)=***\nHINT:  no"

    def test_of_an_argument_the_types_are_kept(self) -> None:
        kept = clean("invalid input for query argument $1: 'x' (expected str, got int)")

        assert kept == "invalid input for query argument $1: *** (expected str, got int)"


class TestRedact:
    def test_the_users_function_has_the_last_word(self) -> None:
        failure = describe(
            raised(ValueError("card 4111"), ValueError("card 4222")),
            attempt=1,
            redact=lambda text: text.replace("4111", "#").replace("4222", "#"),
        )

        assert failure.message == "card #"
        assert failure.causes == ("ValueError: card #",)

    def test_it_does_not_see_what_was_taken_out_before(self) -> None:
        seen: list[str] = []

        clean(f"password={SECRET}", lambda text: seen.append(text) or text)  # type: ignore[func-returns-value]  # None, so the text

        assert seen == ["password=***"]

    def test_when_it_raises_nothing_of_the_text_is_kept(self) -> None:
        def fails(text: str) -> str:
            raise LookupError(text)

        assert clean("the card is 4111", fails) == "(redact failed: LookupError)"

    def test_it_is_not_asked_about_50_megabytes(self) -> None:
        seen: list[int] = []

        clean("x" * 50_000_000, lambda text: str(seen.append(len(text))))  # type: ignore[func-returns-value]  # None

        assert seen[0] <= 2 * MAX_MESSAGE

    @pytest.mark.parametrize("answer", [None, 5, "\x00\ud800", "x" * 10**6, b"x"], ids=ascii)
    def test_whatever_it_returns_can_be_stored(self, answer: Any) -> None:
        kept = clean("text", lambda text: answer)

        assert is_storable(kept)
        assert len(kept) <= LONGEST


class TestSteering:
    def test_a_reason_is_the_text(self) -> None:
        failure = describe(Reject("unknown customer"), attempt=2)

        assert (failure.code, failure.message) == ("reject", "unknown customer")
