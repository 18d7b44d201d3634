"""The loaded models of a process: loaded once, shared by threads, counted, unloaded when idle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgeapp.memory_limit import MemoryLimitReached
from edgeapp.model_pool import ModelPool
from edgeapp.settings import Settings
from pipelines import ModelNotFound, Transcriber, Translator, hub
from pipelines.engine import CompileProgress, Engine
from pipelines.errors import ModelError, UnsupportedTask
from pipelines.hub import assets_folder, choose_default

pytestmark = pytest.mark.usefixtures("kernels")

DEMO = assets_folder() / "models" / "demo-en-de"


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool(Settings(threads=1))


@pytest.mark.slow
def test_a_model_in_use_is_not_unloaded(pool: ModelPool, hub_cache: Path) -> None:
    translator = pool.translator(None, "en", "de")
    assert pool.translator(None, "en", "de") is translator
    assert pool.name_of(translator) == "demo-en-de"
    folder = translator.model.folder
    with pool.using(translator):
        assert pool.use_count(folder) == 1
        with pytest.raises(ModelError, match="is in use"):
            pool.unload(folder)
    pool.unload(folder)
    assert folder not in [model.folder for model in pool.loaded]
    with pytest.raises(ModelError, match="is not loaded"):
        pool.unload(folder)
    assert pool.translator(None, "en", "de") is not translator


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:reader is a VisionEncoderDecoderModel")
def test_the_memory_of_a_reader_is_that_of_its_weights(pool: ModelPool, hub_cache: Path) -> None:
    """Without what the first one imports, which is fifteen times as much."""
    folder = pool.reader("reader").model.folder
    # Its file may hold smaller numbers than the float32 that it is computed in.
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert 0.9 * size < pool.memory_of(folder) < 2.1 * size


@pytest.mark.slow
def test_a_model_that_is_unloaded_before_its_use(pool: ModelPool, hub_cache: Path) -> None:
    """As when one person unloads it while another's task is about to begin."""
    translator = pool.translator("demo-de-en", None, None)
    folder = translator.model.folder
    pool.unload(folder)
    with pytest.raises(ModelError, match="demo-de-en was unloaded"), pool.using(translator):
        pass
    assert pool.use_count(folder) == 0
    again = pool.translator("demo-de-en", None, None)
    with pytest.raises(ModelError, match="was unloaded"), pool.using(again, translator):
        pass
    assert pool.use_count(folder) == 0
    with pool.using(again):
        assert pool.use_count(folder) == 1


@pytest.mark.slow
def test_arbitrary_source_languages_add_no_translators(
    hub_cache: Path, many_folder: Callable[..., Path], marian_folder: Callable[..., Path]
) -> None:
    """A page may send any string; each translator would stay in memory."""
    pool = ModelPool(Settings(threads=1))
    group = marian_folder("opus-mt-de-en", source_lang="mul")
    first = pool.translator(str(group), "fi", None)
    assert all(pool.translator(str(group), f"x{i}", None) is first for i in range(5))
    assert pool.translator(str(group), None, None) is first
    many = str(many_folder("nllb-200-distilled-600M", seed=1))
    english = pool.translator(many, "en", "de")
    assert pool.translator(many, "en", "fr") is english
    assert pool.translator(many, "fr", "de") is not english
    with pytest.raises(UnsupportedTask, match="does not translate from 'tlh'"):
        pool.translator(many, "tlh", "de")
    assert pool.translator(many, "en", "de") is english


@pytest.mark.parametrize("task", ["asr", "translation"])
def test_threads_share_a_model(task: str, hub_cache: Path) -> None:
    pool = ModelPool(Settings(threads=1))
    models: list[Transcriber | Translator] = []
    start = threading.Barrier(4)

    def load() -> None:
        start.wait(60)
        if task == "asr":
            models.append(pool.transcriber("demo", None))
        else:
            models.append(pool.translator("demo-de-en", None, None))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(models) == 4
    assert all(each is models[0] for each in models)
    assert len(pool.loaded) == 1


class Held:
    """A step that waits until it is let go, and counts how often it has begun."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step, self.begun, self.go_on = step, threading.Semaphore(0), threading.Event()
        self.times = 0

    def __get__(self, owner: Any, kind: Any) -> Callable[..., Any]:
        return partial(self, owner)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.times += 1
        self.begun.release()
        assert self.go_on.wait(60)
        return self._step(*arguments, **options)


def in_threads(*calls: Callable[[], Any]) -> list[Future[Any]]:
    executor = ThreadPoolExecutor(len(calls))
    try:
        return [executor.submit(call) for call in calls]
    finally:
        executor.shutdown(wait=False)


def test_a_model_that_is_loaded_does_not_wait_for_one_that_loads(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Start, the end of another session, and the list of models."""
    pool = ModelPool(Settings(threads=1))
    recognizer = pool.transcriber("demo", None)
    session = pool.using(recognizer)
    session.__enter__()
    build = Held(Engine._build)
    monkeypatch.setattr(Engine, "_build", build)
    (loading,) = in_threads(lambda: pool.translator("demo-en-de", None, None))
    try:
        assert build.begun.acquire(timeout=60)

        def start_and_end() -> int:
            with pool.using(pool.transcriber("demo", None)):
                session.__exit__(None, None, None)
                return len(pool.loaded)

        (other,) = in_threads(start_and_end)
        assert other.result(60) == 1
        assert not loading.done()
    finally:
        build.go_on.set()
    assert pool.name_of(loading.result(60)) == "demo-en-de"
    assert pool.use_count(recognizer.model.folder) == 0


def test_a_load_that_fails_is_tried_again_by_the_next(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, failures = ModelPool(Settings(threads=1)), [MemoryLimitReached("it does not fit")]
    original = ModelPool._load_translator

    def load(*arguments: Any) -> Translator:
        if failures:
            raise failures.pop()
        return original(*arguments)

    held = Held(load)
    monkeypatch.setattr(ModelPool, "_load_translator", held)
    waiting = in_threads(*[lambda: pool.translator("demo-en-de", "en", None)] * 3)
    assert held.begun.acquire(timeout=60)
    held.go_on.set()
    made = [future for future in waiting if future.exception(60) is None]
    assert len(made) == 2, "one was told that it does not fit"
    assert made[0].result() is made[1].result()
    assert held.times == 2


def add_to_cache(hub_cache: Path, repository: str, folder: Path) -> None:
    storage = hub_cache / f"models--{repository.replace('/', '--')}"
    (storage / "refs").mkdir(parents=True)
    (storage / "refs" / "main").write_text("a" * 40, "utf-8")
    (storage / "snapshots").mkdir()
    (storage / "snapshots" / ("a" * 40)).symlink_to(folder)


@pytest.mark.slow
def test_a_better_model_that_appears_later_is_used(
    hub_cache: Path,
    whisper_folder: Callable[..., Path],
    marian_folder: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool = ModelPool(Settings(threads=1))
    with pytest.raises(ModelNotFound, match="no recognizer for en is on this machine"):
        pool.transcriber(None, "en")
    assert pool.name_of(pool.translator(None, "en", "de")) == "demo-en-de"
    tiny, opus = whisper_folder("tiny"), marian_folder("opus-mt-en-de")
    add_to_cache(hub_cache, "openai/whisper-tiny", tiny)
    add_to_cache(hub_cache, "Helsinki-NLP/opus-mt-en-de", opus)
    better = (pool.transcriber(None, "en"), pool.translator(None, "en", "de"))
    assert [each.model.folder for each in better] == [tiny.resolve(), opus.resolve()]
    assert (pool.transcriber(None, "en"), pool.translator(None, "en", "de")) == better
    notes = [line for line in capsys.readouterr().err.splitlines() if ": using " in line]
    assert [note.split(": using ")[1].split(",")[0] for note in notes] == [
        "the bundled demo-en-de", "tiny", "opus-mt-en-de",
    ]  # fmt: skip
    assert notes[0].endswith("; opus-mt-en-de is better: `edgeapp models pull opus-mt-en-de`")


@pytest.mark.slow
def test_whether_there_is_a_recognizer_is_looked_up_once(
    hub_cache: Path, whisper_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, asked = ModelPool(Settings()), []

    def choose(task: Any) -> Any:
        asked.append(task)
        return choose_default(task)

    monkeypatch.setattr(hub, "choose_default", choose)
    for _ in range(3):
        with pytest.raises(ModelNotFound, match="no recognizer is on this machine") as error:
            pool.check_recognizer()
        assert error.value.download == "base"
    assert len(asked) == 1
    add_to_cache(hub_cache, "openai/whisper-base", whisper_folder("tiny"))
    for _ in range(3):
        pool.check_recognizer()
    assert len(asked) == 2, "the models have changed"


def test_languages_share_a_transcriber(
    hub_cache: Path, whisper_folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    add_to_cache(hub_cache, "openai/whisper-tiny", whisper_folder("tiny"))
    pool = ModelPool(Settings(threads=1))
    german = pool.transcriber(None, "de")
    assert pool.transcriber(None, "fr") is german
    assert pool.transcriber(None, None) is german
    assert pool.transcriber("tiny", "de", "translate") is german
    assert capsys.readouterr().err.count("using tiny") == 1


def test_a_shared_translator_is_checked_for_each_target(pool: ModelPool, hub_cache: Path) -> None:
    translator = pool.translator("demo-en-de", "en", None)
    assert pool.translator("demo-en-de", "en", "de") is translator
    with pytest.raises(UnsupportedTask, match="into de, not into fr"):
        pool.translator("demo-en-de", "en", "fr")


def test_the_files_of_a_translator_tell_its_languages_before_its_name(
    pool: ModelPool, hub_cache: Path
) -> None:
    name = "someone/marian-finetuned-en-to-de"  # "to" is the code of Tongan
    add_to_cache(hub_cache, name, DEMO)
    assert pool.find_translator(name, "en", "de").name == name
    assert pool.translator(name, "en", "de").source_language == "en"
    for pair in (("to", "de"), ("en", "fr")):
        with pytest.raises(UnsupportedTask, match="translates"):
            pool.find_translator(name, *pair)


def test_only_listed_models(hub_cache: Path, tmp_path: Path) -> None:
    pool = ModelPool(Settings(threads=1), listed_only=True)
    for name in (str(tmp_path), "/etc", "tiny", str(DEMO)):
        with pytest.raises(ModelError, match="not among the models"):
            pool.transcriber(name, None)
        with pytest.raises(ModelError, match="not among the models"):
            pool.translator(name, "en", "de")
        with pytest.raises(ModelError, match="not among the models"):
            pool.load(name, "translation")
    assert pool.loaded == ()


def test_a_folder_may_be_named_on_the_command_line(pool: ModelPool, hub_cache: Path) -> None:
    assert DEMO.is_dir()
    assert pool.translator(str(DEMO), "en", "de").model.folder == DEMO.resolve()


def test_the_settings_may_name_a_folder(hub_cache: Path) -> None:
    pool = ModelPool(Settings(threads=1, translation_model=str(DEMO)), listed_only=True)
    assert pool.translator(str(DEMO), "en", "de").model.folder == DEMO.resolve()


@pytest.mark.parametrize(
    ("kept", "end"), [(True, "beside other work, this once\n"), (False, "beside other work\n")]
)
def test_compiling_is_announced_once_only_if_the_result_is_kept(
    kept: bool, end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Engine, "needs_compiling", True)
    monkeypatch.setattr(Engine, "kernel_cache_is_writable", kept)
    pool = ModelPool(Settings())
    try:
        assert pool.engine.needs_compiling
    finally:
        pool.engine.close()
    assert capsys.readouterr().err.endswith(
        f"compiling kernels for this CPU: 20 seconds, minutes {end}"
    )


def test_the_progress_of_compiling_is_noted_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listeners: list[Callable[[CompileProgress], None]] = []
    monkeypatch.setattr(Engine, "needs_compiling", True)
    monkeypatch.setattr(Engine, "report_compiling_to", lambda _, each: listeners.append(each))
    pool = ModelPool(Settings())
    pool.engine.close()
    capsys.readouterr()
    for done, elapsed_s in ((1, 2.0), (3, 7.0), (21, 12.0), (22, 16.9), (61, 32.0)):
        listeners[0](CompileProgress(done, 80, elapsed_s))
    assert pool.compile_progress == CompileProgress(61, 80, 32.0)
    assert capsys.readouterr().err.splitlines() == [
        "edgeapp: compiling kernels: 3 of 80 functions after 7 s",
        "edgeapp: compiling kernels: 21 of 80 functions after 12 s, about 30 s left",
        "edgeapp: compiling kernels: 61 of 80 functions after 32 s, about 10 s left",
    ]


def test_a_model_for_another_task_is_refused_with_those_that_fit(
    pool: ModelPool, hub_cache: Path
) -> None:
    with pytest.raises(ModelError) as error:
        pool.translator("demo", None, None)
    assert str(error.value) == (
        "demo is a model for asr, it cannot translate text; "
        "on this machine demo-en-de, demo-de-en can"
    )
