"""Which model to use when none was named.

Recognition, best first: large-v3, turbo, distil-large-v3.5, distil-large-v3, large-v2,
distil-large-v2, large-v1, medium, distil-medium.en, small, distil-small.en, base, tiny. For
English, each size's .en model comes before the multilingual one; for other languages, .en and
distil models do not count; without a known language they come after all multilingual ones. For
translation into English by the recogniser itself, turbo and distil do not count either: they were
trained without that task.

Translation from s to t, best first: opus-mt-tc-big-s-t, opus-mt-s-t, then the models for several
languages: opus-mt-s-ROMANCE, opus-mt-ROMANCE-t, where they know both nllb-200-3.3b,
nllb-200-distilled-1.3b, nllb-200-1.3b, nllb-200-distilled-600m, m2m100-1.2b, mbart-50-many-to-many,
m2m100-418m, and at last opus-mt-s-mul, opus-mt-mul-t.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.errors import ModelNotFound, UnsupportedTask
from pipelines.hub.assets import BUNDLED, Bundled, Task, bundled_folder
from pipelines.hub.cache import cache_folder, cached_snapshot, unusable
from pipelines.hub.catalog import ResolvedModel, resolve, resolved
from pipelines.hub.multilingual_models import translating
from pipelines.hub.names import repository_of

__all__ = ["choose_default"]

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
_ROMANCE = frozenset({"fr", "es", "it", "pt", "ro", "ca", "gl", "oc", "an", "la", "wa", "lad"})


def choose_default(
    task: Task,
    source: str | None = None,
    target: str | None = None,
    preferred: str | None = None,
) -> ResolvedModel:
    """The model for a task when the user named none for it.

    source, target: language codes as in model names ("en", "de"; "EN" and "en-GB" are taken for
        "en"). For recognition, source is what is spoken (None: not known) and target "en" asks the
        recogniser to translate into English. For translation, None stands for the language of the
        bundled model that has the other one.
    preferred: the user's setting; it is taken as if it had been named.
    Otherwise the best model in the local cache, in the order above, else the bundled one. The
    choice comes with a note of one line that says what was chosen, and how to get something else.
    Raises ModelNotFound when nothing on this machine serves these languages, UnsupportedTask when
    nothing could, and whatever `resolve` raises for `preferred`.
    """
    if preferred:
        return resolve(preferred)
    source, target = _plain(source), _plain(target)
    if task == "translation":
        bundled = BUNDLED[_bundled_name(task, source, target)]
        source, target = source or bundled.source, target or bundled.target
        _check_pair(source, target)
        candidates, kind = list(_translators(source, target)), f"from {source} to {target}"
    else:
        candidates = list(_recognisers(source, into_english=_translates(source, target)))
        kind = "" if source is None else f"for {source}"
        kind += f" that also translates into {target}" if _translates(source, target) else ""
        kind = kind.strip()
    for name in candidates:
        found = _in_cache(name, kind)
        if found is not None:
            return found
    return _bundled(task, source, target, kind, better=candidates)


def _plain(code: str | None) -> str | None:
    """Without region or capitals: "pt_BR" → "pt". Groups ("ROMANCE", "mul") stay as they are."""
    language = code.replace("_", "-").partition("-")[0] if code else ""
    return language.lower() if len(language) == 2 and language.isalpha() else code


def _check_pair(source: str, target: str) -> None:
    if source == target:
        raise UnsupportedTask(
            f"there is nothing to translate from {source} to {target}; name both languages"
        )
    for code in (source, target):
        if repository_of(f"opus-mt-{code}-x") is None:
            raise UnsupportedTask(f"{code!r} is no language code; write en or de")


def _recognisers(source: str | None, *, into_english: bool) -> Iterator[str]:
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


def _translates(source: str | None, target: str | None) -> bool:
    """Whether the recogniser itself is asked to translate."""
    return target is not None and target != source


def _translators(source: str, target: str) -> Iterator[str]:
    yield f"opus-mt-tc-big-{source}-{target}"
    yield f"opus-mt-{source}-{target}"
    if target in _ROMANCE:
        yield f"opus-mt-{source}-ROMANCE"
    if source in _ROMANCE:
        yield f"opus-mt-ROMANCE-{target}"
    yield from translating(source, target)
    yield f"opus-mt-{source}-mul"
    yield f"opus-mt-mul-{target}"


def _in_cache(name: str, kind: str) -> ResolvedModel | None:
    repository = repository_of(name)
    assert repository is not None
    folder = cached_snapshot(repository)
    if folder is None or unusable(folder) is not None:
        return None
    what = f"the best model {kind}".rstrip()
    note = f"using {name}, {what} in {cache_folder()}; -m chooses another"
    return resolved(repository, folder, "cache", note)


def _bundled(
    task: Task, source: str | None, target: str | None, kind: str, better: list[str]
) -> ResolvedModel:
    name = _bundled_name(task, source, target)
    bundled = BUNDLED[name]
    # The smallest that serves for recognition, the ordinary pair for translation.
    real = better[1] if task == "translation" else _smallest(source, better)
    get = f"`edgeapp models pull {real}`"
    # The bundled recogniser writes down what it hears, and does no more.
    if not _fits(bundled, source, target) or (task == "asr" and _translates(source, target)):
        what = "translator" if task == "translation" else "recogniser"
        ours = {name: model.good_for for name, model in BUNDLED.items() if model.task == task}
        raise ModelNotFound(
            f"no {what} {kind} is on this machine: looked in {cache_folder()}, and the bundled "
            f"{' and '.join(ours)} {'is' if len(ours) == 1 else 'are'} only for "
            f"{' and '.join(ours.values())}; {get} downloads one"
        )
    note = f"using the bundled {name}, good for {bundled.good_for} only; {get} gets a real one"
    return ResolvedModel(name, task, bundled_folder(name), "bundled", note)


def _bundled_name(task: Task, source: str | None, target: str | None) -> str:
    """The bundled model for these languages; the first of the task where there is none."""
    ours = [name for name, bundled in BUNDLED.items() if bundled.task == task]
    return next((name for name in ours if _fits(BUNDLED[name], source, target)), ours[0])


def _fits(bundled: Bundled, source: str | None, target: str | None) -> bool:
    return source in (None, bundled.source) and target in (None, bundled.target)


def _smallest(source: str | None, candidates: list[str]) -> str:
    return "tiny.en" if source == "en" and "tiny.en" in candidates else "tiny"
