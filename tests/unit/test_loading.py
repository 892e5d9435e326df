"""``module:attribute`` to an outbox, or an answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sa_outbox
from sa_outbox import Outbox
from sa_outbox.consume.loader import load_observer, load_outbox
from sa_outbox.errors import ConfigError
from sa_outbox.observe import Observation

GOOD = """
from sa_outbox import Outbox

class Shop:
    def __init__(self):
        self.outbox = Outbox(prefix="shop")

outbox = Outbox()
shop = Shop()
maker = outbox.sessionmaker
"""


@pytest.fixture(autouse=True)
def _only_its_own_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    def write_module(name: str, source: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    return write_module


Write = Callable[[str, str], None]


def answer(target: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_outbox(target)
    return str(raised.value)


def test_the_module_is_found_in_the_current_folder(write: Write) -> None:
    write("app_here", GOOD)

    assert isinstance(load_outbox("app_here:outbox"), Outbox)


def test_the_attribute_may_have_dots(write: Write) -> None:
    write("app_here", GOOD)

    assert load_outbox("app_here:shop.outbox").settings.names.prefix == "shop"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("shop.app", "'shop.app' is not module:attribute, as in shop.app:outbox"),
        ("", "'' is not module:attribute, as in shop.app:outbox"),
        (":outbox", "':outbox' is not module:attribute, as in shop.app:outbox"),
        ("shop.app:", "'shop.app:' is not module:attribute, as in shop.app:outbox"),
        ("shop/app.py", "'shop/app.py' is not module:attribute, as in shop.app:outbox"),
        ("shop/app.py:outbox", "'shop/app.py' is a file; as a module: shop.app:outbox"),
    ],
)
def test_what_is_not_a_target_is_shown_one(target: str, told: str) -> None:
    assert answer(target) == told


def test_a_module_that_is_missing_is_named_with_the_near_one(write: Write, tmp_path: Path) -> None:
    write("app_here", GOOD)

    told = answer("app_hree:outbox")

    expected = f"there is no module 'app_hree' in {tmp_path}, nor installed"
    assert told == f"{expected}; did you mean 'app_here'?"


def test_so_is_a_module_in_a_package(write: Write) -> None:
    write("shop_package.__init__", "")
    write("shop_package.app", GOOD)

    told = answer("shop_package.appp:outbox")

    assert told == "there is no module 'shop_package.appp' in shop_package; did you mean 'app'?"


def test_a_package_that_is_missing_is_named_with_what_was_asked_for() -> None:
    assert "there is no module 'nowhere' of 'nowhere.app' in " in answer("nowhere.app:outbox")


def test_a_module_in_a_module_is_missing(write: Write) -> None:
    write("app_here", GOOD)

    assert answer("app_here.app:outbox").startswith("there is no module 'app_here.app' in app_here")


def test_a_missing_attribute_is_answered_with_the_near_one(write: Write) -> None:
    write("app_here", GOOD)

    assert answer("app_here:outbx") == "app_here has no attribute 'outbx'; did you mean 'outbox'?"
    assert (
        answer("app_here:shop.outbx")
        == "a Shop in app_here has no attribute 'outbx'; did you mean 'outbox'?"
    )


def test_if_none_is_near_with_the_outboxes_there_are(write: Write) -> None:
    write("app_here", GOOD)

    told = answer("app_here:xyz")

    assert told == "app_here has no attribute 'xyz'; its outboxes: app_here:outbox"


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [("Shop", "the class Shop"), ("maker", "a method"), ("shop", "a Shop"), ("__name__", "a str")],
)
def test_what_is_not_an_outbox_is_named(write: Write, attribute: str, kind: str) -> None:
    write("app_here", GOOD)

    told = answer(f"app_here:{attribute}")

    expected = f"app_here:{attribute} is not an Outbox but {kind}; its outboxes: app_here:outbox"
    assert told == expected


class TestModulesThatCanNotBeImported:
    def test_its_own_error_is_shown_with_its_place(self, write: Write, tmp_path: Path) -> None:
        write("app_here", "import helper_here\n")
        write("helper_here", "def divide():\n    return 1 / 0\n\ndivide()\n")

        told = answer("app_here:outbox")

        assert told.startswith("app_here can't be imported:\n")
        assert told.endswith("ZeroDivisionError: division by zero")
        assert f'File "{tmp_path}/helper_here.py", line 2, in divide' in told
        assert "importlib" not in told

    def test_another_module_that_it_misses_is_its_own_error(self, write: Write) -> None:
        write("app_here", "import not_installed_here\n")

        told = answer("app_here:outbox")

        assert told.startswith("app_here can't be imported:\n")
        assert told.endswith("ModuleNotFoundError: No module named 'not_installed_here'")

    def test_a_syntax_error_is_shown_where_it_is(self, write: Write) -> None:
        write("app_here", "x = (\n")

        told = answer("app_here:outbox")

        assert "app_here.py" in told
        assert "SyntaxError" in told

    def test_a_module_that_exits_is_no_exit(self, write: Write) -> None:
        write("app_here", "import sys\nsys.exit(3)\n")

        assert answer("app_here:outbox").endswith("SystemExit: 3")

    def test_no_password_is_shown(self, write: Write) -> None:
        write("app_here", "raise ValueError('postgresql://shop:hidden@db/shop')\n")

        told = answer("app_here:outbox")

        assert told.endswith("ValueError: postgresql://***@db/shop")
        assert "hidden" not in told


def test_with_safe_path_the_current_folder_is_left_alone(tmp_path: Path) -> None:
    tmp_path.joinpath("app_planted.py").write_text("raise SystemExit('it was run')")
    program = "from sa_outbox.consume.loader import load_outbox; load_outbox('app_planted:outbox')"
    environment = {**os.environ, "PYTHONPATH": str(Path(sa_outbox.__file__).parents[1])}

    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "there is no module 'app_planted'" in done.stderr


OBSERVERS = """
from functools import partial

class Counter:
    def __init__(self): self.seen = []
    def __call__(self, observation): self.seen.append(observation)
    def observe(self, observation): self.seen.append(observation)

class Async:
    async def __call__(self, observation): ...

def observe(observation, prefix="x"): ...
def nothing(): ...
def two(one, other): ...
def named(*, observation): ...
async def later(observation): ...

counter = Counter()
awaited = Async()
part = partial(two, 1)
text = "observe"
"""


class TestObservers:
    @pytest.mark.parametrize("name", ["observe", "counter", "counter.observe", "part", "print"])
    def test_a_function_or_an_object_that_takes_one_argument_is_one(
        self, write: Write, name: str
    ) -> None:
        write("watch_here", OBSERVERS + "\nprint = print\n")

        load_observer(f"watch_here:{name}")(Observation())

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("text", "watch_here:text is not an observer but a str: name a function"),
            ("Counter", "watch_here:Counter is not an observer but the class Counter"),
            ("nothing", "watch_here:nothing can't be called with one argument, the observation"),
            ("two", "watch_here:two can't be called with one argument"),
            ("named", "watch_here:named can't be called with one argument"),
            ("later", "watch_here:later is async: nobody would await it"),
            ("awaited", "watch_here:awaited is async: nobody would await it"),
            ("observed", "watch_here has no attribute 'observed'; did you mean 'observe'"),
        ],
    )
    def test_what_is_none_is_refused_with_what_it_is(
        self, write: Write, name: str, told: str
    ) -> None:
        write("watch_here", OBSERVERS)

        with pytest.raises(ConfigError) as raised:
            load_observer(f"watch_here:{name}")

        assert told in str(raised.value)

    def test_a_name_without_its_module_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"is not module:attribute, as in observe:observe"):
            load_observer("observe")
