"""Checks that import nothing heavy: versions, settings, models, disk."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from edgeapp.doctor.findings import Finding, State
from pipelines import EdgeError, ModelNotFound

__all__ = ["CHECKS"]

_LOW_DISK_BYTES = 3e9  # the largest Whisper model takes 3.1 GB
_DISTRIBUTION = "edgeapp"


def _versions() -> Iterator[Finding]:
    """The program, Python and the required packages, compared with their bounds."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = f"Python {platform.python_version()}"
    try:
        own = f"edgeapp {metadata.version(_DISTRIBUTION)}"
        requirements = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        advice = "install the program: pip install -e ."
        yield Finding("Versions", State.BROKEN, f"edgeapp is not installed, {python}", advice)
        return
    yield Finding("Versions", State.OK, f"{own}, {python}, {system}, {sys.executable}")
    shown = []
    for text in requirements:
        finding, version = _requirement(text)
        if finding is not None:
            yield finding
        if version is not None:
            shown.append(version)
    yield Finding("Versions", State.OK, ", ".join(shown))


# Packages whose version explains most reports of problems.
_TELLING = ("torch", "numba", "numpy", "av", "gradio", "huggingface-hub", "sounddevice")


def _requirement(text: str) -> tuple[Finding | None, str | None]:
    """What is wrong with a required package, and its version where that is worth a word."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None, None
    advice = f'pip install "{str(requirement).partition(";")[0].strip()}"'
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        text = f"{requirement.name} is not installed"
        return Finding("Versions", State.BROKEN, text, advice), None
    if not requirement.specifier.contains(version, prereleases=True):
        text = f"{requirement.name} {version} is not {requirement.specifier}"
        return Finding("Versions", State.BROKEN, text, advice), None
    telling = canonicalize_name(requirement.name) in _TELLING
    return None, f"{requirement.name} {version}" if telling else None


def _settings() -> Iterator[Finding]:
    """The settings file, and the models that it names."""
    from edgeapp.settings import config_file, load_settings
    from pipelines.hub import resolve

    path = config_file()
    settings = load_settings()
    where = f"{path}" if path.is_file() else f"defaults; {path} does not exist"
    yield Finding("Settings", State.OK, where)
    for name in (settings.model, settings.translation_model):
        if name is None:
            continue
        try:
            folder = resolve(name).folder
        except EdgeError as error:
            yield Finding("Settings", State.BROKEN, str(error), "change the settings or pull it")
        else:
            yield Finding("Settings", State.OK, f"the model {name} is in {folder}")


def _models() -> Iterator[Finding]:
    """The models on this machine, and the defaults for speech and for pictures."""
    from pipelines.hub import (
        RECOMMENDED_READER,
        RECOMMENDED_RECOGNIZER,
        cache_folder,
        choose_default,
        incomplete_models,
        list_models,
    )

    models, default = list_models(), _default_recognizer()
    for task, what, example in (
        # The advice is given once.
        ("asr", "speech recognition", None if default.advice else RECOMMENDED_RECOGNIZER),
        ("translation", "translation", "opus-mt-en-de"),
        ("reading", "reading of pictures", RECOMMENDED_READER),
    ):
        names = [model.name for model in models if model.task == task]
        advice = None if example is None else f"edgeapp models pull {example}"
        if not names:
            yield Finding("Models", State.BROKEN, f"no model for {what}", advice)
            continue
        bundled = all(model.source == "bundled" for model in models if model.task == task)
        state = State.MISSING if bundled else State.OK
        note = " (bundled, for tests)" if bundled else ""
        text = f"{what}: {', '.join(names)}{note}"
        yield Finding("Models", state, text, advice if bundled else None)
    yield default
    yield Finding("Models", State.OK, f"pictures are read by {choose_default('reading').name}")
    unusable = incomplete_models()
    if unusable:
        text = f"{len(unusable)} in {cache_folder()} cannot be used: {', '.join(unusable)}"
        advice = f"edgeapp models path {unusable[0]} says why"
        yield Finding("Models", State.MISSING, text, advice)


def _default_recognizer() -> Finding:
    """The recognizer that is used unless one is named."""
    from edgeapp.settings import load_settings
    from pipelines.hub import choose_default

    try:
        chosen = choose_default("asr", preferred=load_settings().model)
    except EdgeError as error:
        missing = error.download if isinstance(error, ModelNotFound) else None
        remedy = None if missing is None else f"edgeapp models pull {missing}"
        return Finding("Models", State.MISSING, str(error), remedy)
    return Finding("Models", State.OK, f"speech is recognized by {chosen.name}")


def _disk() -> Iterator[Finding]:
    """Free space where models are stored."""
    from pipelines.hub import cache_folder, free_bytes

    free = free_bytes()
    low = free < _LOW_DISK_BYTES
    yield Finding(
        "Disk",
        State.MISSING if low else State.OK,
        f"{free / 1e9:.1f} GB free for {cache_folder()}",
        "free some space, or set HF_HUB_CACHE to a folder on another disk" if low else None,
    )


CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "Versions": _versions,
    "Settings": _settings,
    "Models": _models,
    "Disk": _disk,
}
