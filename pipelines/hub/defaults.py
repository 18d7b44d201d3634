"""The default model of a task, if the user names none.

Recognition, best first: large-v3, turbo, distil-large-v3.5, distil-large-v3, large-v2,
distil-large-v2, large-v1, medium, distil-medium.en, small, distil-small.en, base, tiny. For
English, each size's .en model comes before the multilingual one; for other languages, .en and
distil models are left out; if the language is not known they come after all multilingual ones. For
translation into English by Whisper itself (its task "translate"), turbo and distil are left out as
well: they were not trained on that task. Other recognizers come last, the largest first. The
bundled one is never chosen: it knows synthetic voices only.

Translation from s to t, best first: opus-mt-tc-big-s-t, opus-mt-s-t, then the models for several
languages: opus-mt-s-ROMANCE, opus-mt-ROMANCE-t, those of nllb-200-3.3b, nllb-200-distilled-1.3b,
nllb-200-1.3b, nllb-200-distilled-600m, m2m100-1.2b, mbart-50-many-to-many, m2m100-418m that cover
both languages, then opus-mt-s-mul, opus-mt-mul-t.

For pictures, of models that read lines (TrOCR) best first: trocr-large-printed,
trocr-base-printed, trocr-small-printed, then others by name, but for those of handwriting. Models
of whole documents and captions are used where they are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pipelines.errors import ModelNotFound, UnsupportedTask
from pipelines.families import Task
from pipelines.hub.assets import BUNDLED, Bundled, bundled_folder
from pipelines.hub.cache import (
    cache_folder,
    cached_models,
    language_tokens,
    reads_lines,
    usable_snapshot,
)
from pipelines.hub.catalog import (
    ModelInfo,
    ResolvedModel,
    cached_published,
    elsewhere,
    list_models,
    resolve,
    resolved,
)
from pipelines.hub.names import multilingual_models, repository_of
from pipelines.hub.sources import published_model
from pipelines.languages import check_spoken, language_in_name

_RECOGNISERS = (
    "large-v3",
    "turbo",
    "distil-large-v3.5",
    "distil-large-v3",
    "large-v2",
    "distil-large-v2",
    "large-v1",
    "medium.en",
    "medium",
    "distil-medium.en",
    "small.en",
    "small",
    "distil-small.en",
    "base.en",
    "base",
    "tiny.en",
    "tiny",
)
RECOMMENDED_RECOGNIZER = "base"
"""The first model to download for recognition: small, fast and for all languages."""
RECOMMENDED_RECOGNIZER_IN_WORDS = "Whisper base, 99 languages, 145 MB"
"""What `RECOMMENDED_RECOGNIZER` is, for messages."""

_READERS = tuple(f"microsoft/trocr-{size}-printed" for size in ("large", "base", "small"))
RECOMMENDED_READER = "microsoft/trocr-base-printed"
"""The first model to download for pictures of print."""

_ROMANCE = frozenset({"fr", "es", "it", "pt", "ro", "ca", "gl", "oc", "an", "la", "wa", "lad"})


def choose_default(
    task: Task,
    source: str | None = None,
    target: str | None = None,
    preferred: str | None = None,
) -> ResolvedModel:
    """The model for a task if the user names none: the best on this machine, in the order above,
    else the bundled one, but for recognition.

    Args:
        task: "asr", "translation" or "reading", for which there are no languages.
        source: Language code as in model names ("en", "de"; "EN" and "en-GB" mean "en"). For
            recognition the spoken language, None if it is not known. For translation None means
            the source language of the bundled model for `target`.
        target: Language code. For recognition "en" requests translation into English by the
            recognizer. For translation None means the target of the bundled model for `source`.
        preferred: The model of the user's settings; it is resolved as if it had been named.

    Returns:
        The model, with a note of one line about the choice and how to get another model.

    Raises:
        ModelNotFound: No model on this machine supports these languages, or only the bundled one
            recognizes speech.
        UnsupportedTask: No model can: the languages are equal, or one is not a language code.
        Exception: As `resolve` raises for `preferred`.
    """
    if preferred:
        return resolve(preferred)
    if task == "reading":
        return _reader()
    source, target = _base_language(source), _base_language(target)
    return _recognizer(source, target) if task == "asr" else _translator(source, target)


def translator_to_download(source: str, target: str, *, sure: bool = True) -> str | None:
    """Return the name of a model to download for a translation.

    Args:
        source: Language code.
        target: Language code.
        sure: The text is in `source`. Else the model is one for many languages, so that it helps
            even if the guess was wrong; None if there is none.
    """
    if sure:
        return f"opus-mt-{source}-{target}"
    return next(reversed(multilingual_models(source, target)), None)  # the smallest


def recognizer_languages(model: ModelInfo) -> tuple[str, ...]:
    """Return the codes of the languages that a recognizer knows."""
    return language_tokens(model.folder) or (language_in_name(model.name) or "en",)


def check_recognizer_language(model: ResolvedModel, language: str | None) -> None:
    """Raise UnsupportedTask if the files of a recognizer tell that it lacks a language.

    Args:
        model: The recognizer.
        language: A code; None: it is to be detected.
    """
    if known := language_tokens(model.folder):
        check_spoken(model.name, language, known)


def _reader() -> ResolvedModel:
    """The best downloaded model for lines of print, else the bundled one."""
    found = {name: folder for name, folder in cached_models() if _reads_print(name, folder)}
    best = next((name for name in _READERS if name in found), next(iter(found), None))
    if best is not None:
        where = cache_folder()
        note = f"using {best}, the best reader of print in {where}; name a model to use another"
        return resolved(best, found[best], "cache", note)
    name = next(name for name, bundled in BUNDLED.items() if bundled.task == "reading")
    better = RECOMMENDED_READER
    note = f"using the bundled {name}, good for {BUNDLED[name].good_for} only; {better} is better"
    return ResolvedModel(name, "reading", bundled_folder(name), "bundled", note, better)


def _reads_print(name: str, folder: Path) -> bool:
    return reads_lines(folder) and "handwritten" not in name


def _base_language(code: str | None) -> str | None:
    """A code without its region, in lower case: "pt_BR" → "pt". Group codes ("ROMANCE", "mul")
    are returned unchanged."""
    language = code.replace("_", "-").partition("-")[0] if code else ""
    return language.lower() if len(language) == 2 and language.isalpha() else code


def _check_pair(source: str, target: str) -> None:
    if source == target:
        raise UnsupportedTask(f"source and target are both {source}; name two different languages")
    for code in (source, target):
        if repository_of(f"opus-mt-{code}-x") is None:
            raise UnsupportedTask(f"{code!r} is not a language code; write en or de")


def _recognizers(source: str | None, *, into_english: bool) -> Iterator[str]:
    """Short names of the models for recognition, best first."""
    english_only = [name for name in _RECOGNISERS if _is_english_only(name)]
    if source == "en" and not into_english:
        yield from _RECOGNISERS
        return
    for name in _RECOGNISERS:
        if name not in english_only and not (into_english and name == "turbo"):
            yield name
    if source is None and not into_english:
        yield from english_only


def _is_english_only(name: str) -> bool:
    return name.endswith(".en") or name.startswith("distil-")


def _translators(source: str, target: str) -> Iterator[str]:
    """Short names of the models for translation, best first; most pairs exist only as names."""
    yield f"opus-mt-tc-big-{source}-{target}"
    yield f"opus-mt-{source}-{target}"
    if target in _ROMANCE:
        yield f"opus-mt-{source}-ROMANCE"
    if source in _ROMANCE:
        yield f"opus-mt-ROMANCE-{target}"
    yield from multilingual_models(source, target)
    yield f"opus-mt-{source}-mul"
    yield f"opus-mt-mul-{target}"


def _recognizer(source: str | None, target: str | None) -> ResolvedModel:
    """The best recognizer that is not bundled: one with a short name, else the largest of the
    others."""
    into_english = target is not None and target != source
    kind = "" if source is None else f"for {source}"
    kind = f"{kind} that also translates into {target}".strip() if into_english else kind
    model = _best_cached(_recognizers(source, into_english=into_english), kind)
    return model or _other_recognizer(source, kind, into_english=into_english)


def _translator(source: str | None, target: str | None) -> ResolvedModel:
    """The best translator on this machine, else a bundled one."""
    bundled = BUNDLED[_bundled_name("translation", source, target)]
    source, target = source or bundled.source, target or bundled.target
    _check_pair(source, target)
    kind, names = f"from {source} to {target}", list(_translators(source, target))
    return _best_cached(names, kind) or _bundled_translator(source, target, kind, better=names[1])


def _best_cached(names: Iterable[str], kind: str) -> ResolvedModel | None:
    """The first of the models, given by their short names, that is on this machine."""
    return next(filter(None, (_in_cache(name, kind) for name in names)), None)


def _other_recognizer(source: str | None, kind: str, *, into_english: bool) -> ResolvedModel:
    """The best recognizer that is not in the order above, with a note. It must translate into
    English if `into_english`, as multilingual ones do.

    Raises:
        ModelNotFound: No recognizer for people's voices is on this machine.
    """
    languages = {
        model: recognizer_languages(model)
        for model in list_models()
        if model.task == "asr" and model.source != "bundled" and model.name not in _RECOGNISERS
    }

    def rank(model: ModelInfo) -> tuple[bool, bool, bool, int]:
        # If the language is not known, it is more likely one of many than English.
        multilingual, english = len(languages[model]) > 1, "en" in languages[model]
        return model.native, multilingual, english, model.size_bytes

    able = (
        model
        for model, codes in languages.items()
        if source in (None, *codes) and (len(codes) > 1 or not into_english)
    )
    best = max(able, key=rank, default=None)
    if best is None:
        missing = f"no recognizer {kind}" if kind else "no recognizer"
        name = _bundled_name("asr", None, None)
        raise ModelNotFound(
            f"{missing} is on this machine: looked in {cache_folder()}, and the bundled {name} is "
            f"only for {BUNDLED[name].good_for}; download {RECOMMENDED_RECOGNIZER} "
            f"({RECOMMENDED_RECOGNIZER_IN_WORDS})",
            download=RECOMMENDED_RECOGNIZER,
        )
    what = f"the best recognizer {kind}".rstrip()
    note = f"using {best.name}, {what} on this machine; name a model to use another"
    return ResolvedModel(best.name, "asr", best.folder, best.source, note)


def _in_cache(name: str, kind: str) -> ResolvedModel | None:
    """The usable cached model of a short name, with a note. kind: "for de", "from en to de" …"""
    repository = repository_of(name)
    assert repository is not None
    folder = usable_snapshot(repository)
    what = f"the best model {kind}".rstrip()
    note = f"using {name}, {what} in {cache_folder()}; name a model to use another"
    if folder is not None:
        return resolved(repository, folder, "cache", note)
    published = published_model(name)
    model = None if published is None else cached_published(published)
    return elsewhere(name) if model is None else replace(model, note=note)


def _bundled_translator(source: str, target: str, kind: str, *, better: str) -> ResolvedModel:
    """The bundled translator, with a note that names a better one.

    Raises:
        ModelNotFound: The bundled translators do not support these languages.
    """
    name = _bundled_name("translation", source, target)
    bundled = BUNDLED[name]
    if not _fits(bundled, source, target):
        limits = {
            name: each.good_for for name, each in BUNDLED.items() if each.task == bundled.task
        }
        raise ModelNotFound(
            f"no translator {kind} is on this machine: looked in {cache_folder()}, and the bundled "
            f"{' and '.join(limits)} are only for {' and '.join(limits.values())}; "
            f"download {better}",
            download=better,
        )
    note = f"using the bundled {name}, good for {bundled.good_for} only; {better} is better"
    return ResolvedModel(name, bundled.task, bundled_folder(name), "bundled", note, better)


def _bundled_name(task: Task, source: str | None, target: str | None) -> str:
    """The bundled model for these languages; the first one of the task if there is none."""
    names = [name for name, bundled in BUNDLED.items() if bundled.task == task]
    return next((name for name in names if _fits(BUNDLED[name], source, target)), names[0])


def _fits(bundled: Bundled, source: str | None, target: str | None) -> bool:
    return source in (None, bundled.source) and target in (None, bundled.target)
