"""Values that the shell completes: names of models and languages. Nothing heavy is imported."""

from __future__ import annotations

__all__ = ["complete_languages", "complete_models"]


def complete_models(incomplete: str) -> list[tuple[str, str]]:
    """Names of models that begin with `incomplete`, with a word of help each.

    The models on this machine; folders are completed by the shell itself.
    """
    from pipelines import EdgeError
    from pipelines.hub import list_models

    try:
        models = list_models()
    except (EdgeError, OSError):
        return []
    return [(model.name, model.task) for model in models if model.name.startswith(incomplete)]


def complete_languages(incomplete: str) -> list[tuple[str, str]]:
    """Codes and English names of languages that begin with `incomplete`, or its last item."""
    from pipelines import LANGUAGES

    before, comma, wanted = incomplete.lower().rpartition(",")
    codes = [(code, name) for code, name in LANGUAGES.items() if code.startswith(wanted)]
    names = [(name, code) for code, name in LANGUAGES.items() if name.startswith(wanted)]
    found = codes + names if wanted else codes
    return [(f"{before}{comma}{value}", meaning) for value, meaning in found]
