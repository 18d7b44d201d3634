"""The page's models: picker options, the list of models, and texts that are translated."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import edgeapp.server
from edgeapp.model_pool import ModelPool
from edgeapp.server.api.text_translation import translatable_pairs
from edgeapp.server.options import ServerOptions
from edgeapp.server.page.model_list import download_plan, model_list
from edgeapp.server.page.page_api import PageApi
from edgeapp.server.page.picker_options import (
    ModelChoice,
    PickerOptions,
    TranslatorOption,
    language_name,
    picker_options,
)
from edgeapp.server.sessions import Sessions, TaskCancelled
from edgeapp.server.tasks.text_task import TextTask
from edgeapp.server.viewers.broadcast import Broadcasts
from edgeapp.server.viewers.sharing import Sharing
from edgeapp.settings import Settings
from edgeapp.ui import STATIC
from pipelines import json_files
from pipelines.errors import InputError, OptionError, UnsupportedTask
from pipelines.hub import ModelInfo, PullPlan, bundled_folder

pytestmark = pytest.mark.usefixtures("kernels")


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool(Settings(threads=1), listed_only=True)


def test_picker_options(hub_cache: Path) -> None:
    known = picker_options()
    assert [(one.name, one.languages) for one in known.recognizers] == [("demo", ("en",))]
    assert [(pair.model, pair.source, pair.target) for pair in known.pairs] == [
        ("demo-en-de", "en", "de"),
        ("demo-de-en", "de", "en"),
    ]
    assert known.as_message()["languages"] == {"de": "German", "en": "English"}
    assert language_name("xx") == "xx"


def test_models_are_read_again_only_when_one_of_their_files_has_changed(
    pool: ModelPool, hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Viewers, lists and requests of programs ask all the time."""
    read: list[Path] = []
    original = json_files._read_json

    def counted(path: Path, largest: int) -> Any:
        read.append(path)
        return original(path, largest)

    def names() -> tuple[set[str], int]:
        """What is listed, and how many files were read for it."""
        read.clear()
        listed = {row["name"] for row in model_list(pool)}
        assert listed >= {pair.model for pair in picker_options().pairs}
        assert translatable_pairs()
        return listed, len(read)

    monkeypatch.setattr(json_files, "_read_json", counted)
    bundled, _ = names()
    assert names() == (bundled, 0)
    snapshots = hub_cache / "models--someone--opus-mt-de-fr" / "snapshots"
    snapshots.mkdir(parents=True)
    copytree(bundled_folder("demo-en-de"), snapshots / ("a" * 40))
    listed, files = names()
    assert listed == bundled | {"someone/opus-mt-de-fr"}
    assert files
    assert names() == (listed, 0)
    (snapshots / ("a" * 40) / "source.spm").unlink()
    listed, files = names()
    assert listed == bundled
    assert files
    (snapshots / ("a" * 40) / "config.json").write_text("{}", "utf-8")
    assert names()[1]


@pytest.mark.slow
def test_models_of_many_languages(
    hub_cache: Path, whisper_folder: Callable[..., Path], marian_folder: Callable[..., Path]
) -> None:
    for name, folder in (
        ("someone/many", whisper_folder("tiny")),
        ("Helsinki-NLP/opus-mt-en-mul", marian_folder("opus-mt-en-mul")),
    ):
        storage = hub_cache / f"models--{name.replace('/', '--')}"
        (storage / "refs").mkdir(parents=True)
        (storage / "refs" / "main").write_text("a" * 40, "utf-8")
        (storage / "snapshots").mkdir()
        (storage / "snapshots" / ("a" * 40)).symlink_to(folder)
    known = picker_options()
    many = next(one for one in known.recognizers if one.name == "someone/many")
    assert len(many.languages) >= 99
    assert {"en", "de", "zh"} <= set(many.languages)
    assert set(known.automatic) == set(many.languages), "the demo is not chosen by itself"
    assert picker_options("demo").automatic == ("en",), "but where the settings name it"
    targets = {pair.target for pair in known.pairs if pair.model == "opus-mt-en-mul"}
    assert {"fr", "de"} <= targets


@pytest.mark.parametrize(
    ("sources", "targets", "pairs"),
    [
        ((), ("de",), [(None, "de")]),  # its sources have codes of three letters only
        (("ast",), ("de", "fr"), [(None, "de"), (None, "fr")]),
        (("en",), (), []),
        (("en",), ("en", "de"), [("en", "de")]),
        (("en", "de"), ("de",), [("en", "de"), (None, "de")]),
    ],
)
def test_languages_with_codes_of_three_letters(
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    pairs: list[tuple[str | None, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    model = ModelInfo("many", "translation", 1, tmp_path, "cache", None)
    monkeypatch.setattr("edgeapp.server.page.picker_options.list_models", lambda: [model])
    monkeypatch.setattr(
        "edgeapp.server.page.picker_options.model_languages", lambda *of: (sources, targets)
    )
    assert [(pair.source, pair.target) for pair in picker_options().pairs] == pairs


@pytest.mark.slow
def test_the_list_of_models(pool: ModelPool, hub_cache: Path) -> None:
    def row() -> dict[str, Any]:
        return next(row for row in model_list(pool) if row["name"] == "demo-en-de")

    translator = pool.translator(None, "en", "de")
    with pool.using(translator):
        assert row()["loaded"]["users"] == 1
        assert "folder" not in row()
    pool.unload(translator.model.folder)
    assert row()["loaded"] is None


def test_messages_for_the_page_name_no_flags(pool: ModelPool, hub_cache: Path) -> None:
    for source, target in (("fr", "de"), ("en", "fr")):
        with pytest.raises(UnsupportedTask, match=f"such as opus-mt-{source}-{target}") as raised:
            pool.translator("demo-en-de", source, target)
        assert not re.search(r"(^|[ (`])--?[a-z]", str(raised.value))
    # Strings of the modules whose errors a page shows.
    flag = re.compile(r"""["'(` ]--[a-z]|try -[a-z] """)
    # Their errors are for the person who starts the server.
    startup = {"options.py", "serve.py", "hosts.py", "origins.py"}
    for path in Path(edgeapp.server.__path__[0]).rglob("*.py"):
        if path.name not in startup:
            assert not flag.search(path.read_text("utf-8")), path


def test_what_a_user_chose() -> None:
    with pytest.raises(OptionError, match="model: 3 is not a valid choice"):
        ModelChoice.from_message({"model": 3})
    with pytest.raises(OptionError, match="correct: 'false' is not a valid choice"):
        ModelChoice.from_message({"correct": "false"})
    assert ModelChoice.from_message({"model": "", "target": "de"}) == ModelChoice(target="de")
    assert ModelChoice.from_message({"correct": True}) == ModelChoice(correct=True)


def test_the_page_sends_only_requests_that_the_server_handles() -> None:
    pool = ModelPool(Settings())
    api = PageApi(pool, Sessions(1), can_change_models=True)
    sharing = Sharing(Broadcasts(pool), ServerOptions(), str)
    requests = set()
    for script in STATIC.rglob("*.js"):
        requests |= set(re.findall(r'ask\({ type: "(\w+)"', script.read_text("utf-8")))
    assert {"picker_options", "models", "history", "share"} <= requests
    assert all(api.handles(kind) or sharing.handles(kind) for kind in requests)


def test_a_text(pool: ModelPool, hub_cache: Path) -> None:
    messages: list[dict[str, object]] = []
    TextTask(pool, ModelChoice(language="en", target="de"), "Good morning.").run(messages.append)
    expected = pool.translator(None, "en", "de").translate("Good morning.")
    (done,) = [message for message in messages if message["type"] == "text_done"]
    assert done["text"] == expected.text
    assert "".join(str(m["text"]) for m in messages if m["type"] == "text_delta") == expected.text


def test_a_text_in_a_language_that_is_not_installed_is_refused(
    pool: ModelPool, hub_cache: Path
) -> None:
    choice = ModelChoice(language="en", target="de")
    for text, name, model in (
        ("Bonjour tout le monde", "is French", "opus-mt-fr-de"),
        ("Привет", "may be Serbian", "m2m100-418m"),
    ):
        command = rf"the text {name}, .*`edgeapp models pull {model}`"
        with pytest.raises(InputError, match=command):
            TextTask(pool, choice, text).run(lambda _: None)


@pytest.mark.parametrize(
    "pairs",
    [
        (("many", "fr", "ar"), ("many", None, "de")),  # as of a model with many languages
        (("opus-mt-mul-de", None, "de"),),  # French may be one of them
    ],
)
def test_a_text_in_a_language_of_a_model_with_many_is_not_refused(
    pairs: tuple[tuple[str, str | None, str], ...],
    pool: ModelPool,
    hub_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = PickerOptions((), tuple(TranslatorOption(*pair) for pair in pairs))
    monkeypatch.setattr("edgeapp.server.tasks.text_task.picker_options", lambda: options)
    messages: list[dict[str, object]] = []
    choice = ModelChoice(language="en", target="de")
    TextTask(pool, choice, "Bonjour tout le monde").run(messages.append)
    assert "text_done" in {message["type"] for message in messages}


def test_a_cancelled_text(pool: ModelPool, hub_cache: Path) -> None:
    messages: list[dict[str, object]] = []
    task = TextTask(pool, ModelChoice(language="en", target="de"), "Good morning. " * 50)

    def send(message: dict[str, object]) -> None:
        messages.append(message)
        task.cancel()

    with pytest.raises(TaskCancelled):
        task.run(send)
    assert len(messages) == 1, "it ends with the next token"
    assert pool.use_count(pool.translator(None, "en", "de").model.folder) == 0


def test_the_plan_of_a_download_says_that_the_hub_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = PullPlan("openai/whisper-tiny", (("config.json", 9),), 0, "the copy here is used")
    monkeypatch.setattr("pipelines.hub.plan_pull", lambda name: plan)
    assert download_plan("tiny")["note"] == "the copy here is used"
    assert download_plan("tiny")["bytes"] == 9
