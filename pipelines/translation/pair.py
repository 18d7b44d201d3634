"""Translation from one language into another, directly or through English."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol, overload

from pipelines.errors import OptionError
from pipelines.languages import PIVOT, two_letter
from pipelines.options import with_fields
from pipelines.translation.options import TranslateOptions
from pipelines.translation.results import (
    Alignment,
    Translation,
    TranslationDelta,
    TranslationDone,
    TranslationEvent,
)

_LINES_PER_PART = 256  # they fill the batch four times, so that it is rarely half empty


class _Model(Protocol):
    """What is used of a Translator."""

    @property
    def target_codes(self) -> Sequence[str]: ...

    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions | None = None
    ) -> Generator[Translation, None, None]: ...

    def stream(
        self, text: str, options: TranslateOptions | None = None
    ) -> Generator[TranslationEvent, None, None]: ...

    def close(self) -> None: ...


def parts_of_lines(lines: Iterable[str | None]) -> Iterator[list[str] | None]:
    """Return parts of up to 256 lines; None where `lines` pauses."""
    part: list[str] = []
    for line in lines:
        if line is not None:
            part.append(line)
        if part and (line is None or len(part) == _LINES_PER_PART):
            yield part
            part = []
        if line is None:
            yield None
    if part:
        yield part


class PairTranslator:
    """Translates from one language into another: with one model, or with two through English.

    Attributes:
        translators: The models, in the order in which a text passes them.
        source_language, target_language: The codes of the pair.
        pivot: The language between two models; None with one.
    """

    def __init__(
        self,
        translators: Sequence[_Model],
        source: str,
        target: str,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            translators: One, or two of which the first translates into English.
            source: Code of the source language.
            target: Code of the target language.
            close: Called by `close`: releases the models.
        """
        self.translators = tuple(translators)
        self.source_language, self.target_language = source, target
        self.pivot = PIVOT if len(self.translators) > 1 else None
        self._close = close

    # A str is a Sequence[str], too: the first overload that fits is the one meant.
    @overload
    def translate(
        self,
        texts: str,
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> list[Translation]: ...

    def translate(
        self,
        texts: str | Sequence[str],
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Translation | list[Translation]:
        """Translate one text, or several; as Translator.translate."""
        chosen = with_fields(options or TranslateOptions(), overrides)
        if isinstance(texts, str):
            return self._translate([texts], chosen)[0]
        return self._translate(texts, chosen)

    def translate_lines(
        self,
        lines: Iterable[str | None],
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Generator[Translation, None, None]:
        """As Translator.translate_lines; through English, in parts of up to 256 lines."""
        options = with_fields(options or TranslateOptions(), overrides)
        if self.pivot is None:
            return self.translators[0].translate_lines(lines, self._options(options)[0])
        return self._parts(lines, options)

    def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **overrides: Any,
    ) -> Generator[TranslationEvent, None, None]:
        """As Translator.stream. Through English, empty TranslationDelta come while the first model
        is at work, and the source of each SentenceDone is English."""
        return self._stream(text, with_fields(options or TranslateOptions(), overrides))

    def close(self) -> None:
        """Release the models, if `Translator.for_pair` opened them."""
        self._close()

    def __enter__(self) -> PairTranslator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _options(self, options: TranslateOptions) -> list[TranslateOptions]:
        """The options of each model. Those of the wording are for the last one.

        Raises:
            OptionError: They name another language than the pair has.
        """
        for name, ours in (
            ("source_language", self.source_language),
            ("target", self.target_language),
        ):
            given = getattr(options, name)
            if given is not None and two_letter(given.strip("<> ")) != two_letter(ours):
                raise OptionError(
                    f"{name} {given}: this translator is from {self.source_language} into "
                    f"{self.target_language}"
                )
        codes = [self.source_language, *([self.pivot] if self.pivot else []), self.target_language]
        found = []
        for each, source, target in zip(self.translators, codes, codes[1:], strict=False):
            target = options.target or target if target == codes[-1] else target
            found.append(
                replace(
                    options,
                    source_language=source,
                    target=target if each.target_codes else None,
                )
            )
        if self.pivot is not None:
            found[0] = replace(
                found[0], n_best=1, prefix=None, suppress_phrases=(), forced_phrases=(),
                logit_filters=(),
            )  # fmt: skip
        return found

    def _translate(self, texts: Sequence[str], options: TranslateOptions) -> list[Translation]:
        done: list[Translation] = []
        for translator, chosen in zip(self.translators, self._options(options), strict=True):
            lines = [each.text for each in done] or texts
            after = list(translator.translate_lines(lines, chosen))
            done = [_chained(*pair) for pair in zip(done, after, strict=True)] if done else after
        return done

    def _parts(
        self, lines: Iterable[str | None], options: TranslateOptions
    ) -> Generator[Translation, None, None]:
        for part in parts_of_lines(lines):
            yield from self._translate(part or [], options)

    def _stream(
        self, text: str, options: TranslateOptions
    ) -> Generator[TranslationEvent, None, None]:
        *first, (last, last_options) = zip(self.translators, self._options(options), strict=True)
        via: Translation | None = None
        for translator, options in first:
            with closing(translator.stream(text, options)) as events:
                for event in events:
                    if isinstance(event, TranslationDone):
                        via = event.translation
                    yield TranslationDelta("")
        with closing(last.stream(text if via is None else via.text, last_options)) as events:
            for event in events:
                if isinstance(event, TranslationDone) and via is not None:
                    event = TranslationDone(_chained(via, event.translation))
                yield event


def _chained(first: Translation, second: Translation) -> Translation:
    """Return the translation of a translation, aligned with the first source."""
    one, two = first.alignment, second.alignment
    alignment: Alignment | None = None
    if one is not None and two is not None:
        middle: dict[int, list[int]] = {}
        for source, word in one.links:
            middle.setdefault(word, []).append(source)
        links = {(s, target) for word, target in two.links for s in middle.get(word, ())}
        alignment = replace(two, source_words=one.source_words, links=tuple(sorted(links)))
    return replace(
        second,
        source=first.source,
        warnings=(*first.warnings, *second.warnings),
        alignment=alignment,
        via=first,
    )
