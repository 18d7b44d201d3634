"""A warning where a text is not in the language that it is translated from."""

from __future__ import annotations

__all__ = ["LanguageCheck", "language_name"]

_MAX_CHARACTERS = 1000  # a misfit shows in the first lines


def language_name(code: str) -> str:
    """The English name of a language, or its code where it has none here."""
    from pipelines import LANGUAGES

    return LANGUAGES[code].title() if code in LANGUAGES else code


class LanguageCheck:
    """Watches the first lines of an input.

    Args:
        expected: Code of the language from which the model translates; None checks nothing.
    """

    def __init__(self, expected: str | None) -> None:
        self._expected, self._text = expected, ""

    def add(self, text: str) -> str | None:
        """Append a line.

        Returns:
            A warning, once, when the text is in another language without doubt.
        """
        if self._expected is None or len(self._text) > _MAX_CHARACTERS:
            return None
        from pipelines.text_language import text_language_other_than

        self._text += f"{text}\n"
        other = text_language_other_than(self._text, self._expected)
        if other is None:
            return None
        name, expected = language_name(other.code), language_name(self._expected)
        self._expected = None
        return (
            f"the text looks like {name}, but is translated from {expected}; --from {other.code}, "
            f"without a model, chooses a model for {name}"
        )
