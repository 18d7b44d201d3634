"""Texts → translations, directly or through English, as generators for a thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.texts.html_job import HTML_SUFFIXES
from edgeapp.documents.html.translation import translate_html
from edgeapp.documents.subtitle_file import is_subtitle_file, parse
from edgeapp.documents.subtitle_translation import translate_subtitles
from edgeapp.documents.text_encoding import UTF_8, EncodingHint, decode_text
from edgeapp.model_pool import ModelPool
from edgeapp.priorities import Priority
from edgeapp.server.api.errors import ApiError
from edgeapp.server.api.metrics import Metrics
from edgeapp.server.page.picker_options import picker_options
from pipelines import ModelNotFound, UnsupportedTask

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation, Translator

__all__ = ["TextResult", "TextTranslation", "translatable_pairs"]

PIVOT = "en"
_ALTERNATIVE_BEAMS = (4, 2, 6, 8)  # sizes of the searches that give other translations


@dataclass(frozen=True)
class TextResult:
    """A translation.

    Attributes:
        text: The text, or HTML, in the target language.
        alternatives: Other translations, all different.
    """

    text: str
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Step:
    translator: Translator
    options: TranslateOptions


def translatable_pairs() -> dict[str, set[str]]:
    """Source language → target languages of the installed models, through English too."""
    direct: dict[str, set[str]] = {}
    for sources, targets in picker_options().translators.values():
        for source in sources:
            direct.setdefault(source, set()).update(targets - {source})
    from_english = direct.get(PIVOT, set())
    return {
        source: reached | (from_english - {source} if PIVOT in reached else set())
        for source, reached in direct.items()
    }


@dataclass
class TextTranslation:
    """The translation of a request.

    Attributes:
        pool: The shared models.
        metrics: Where it is counted.
        source: Code of the language of the text.
        target: Code of the language to translate into.
        pivot: The language that the translation goes through, known with the first result; None:
            it is direct.
    """

    pool: ModelPool
    metrics: Metrics
    source: str
    target: str
    pivot: str | None = field(default=None, init=False)

    def texts(
        self, texts: Sequence[str], *, html: bool, alternatives: int
    ) -> Callable[[Callable[[], bool]], Generator[TextResult, None, None]]:
        """The work of translating texts.

        Args:
            texts: Texts, or HTML.
            html: They are HTML; tags stay.
            alternatives: How many other translations to look for.
        """

        def run(cancelled: Callable[[], bool]) -> Generator[TextResult, None, None]:
            with ExitStack() as stack:
                steps = self._steps(stack)
                for text in texts:
                    yield self._result(text, steps, cancelled, html, alternatives)

        return run

    def file(
        self, path: Path, name: str
    ) -> Callable[[Callable[[], bool]], Generator[bytes, None, None]]:
        """The work of translating a file: text, HTML or subtitles, by its name.

        Args:
            path: The file.
            name: Its name on the client's machine.
        """

        def run(cancelled: Callable[[], bool]) -> Generator[bytes, None, None]:
            with ExitStack() as stack:
                steps = self._steps(stack)
                if is_subtitle_file(name):
                    yield self._subtitles(path.read_bytes(), name, steps, cancelled)
                    return
                html = name.lower().endswith(HTML_SUFFIXES)
                hint = EncodingHint(language=self.source)
                text, encoding = decode_text(path.read_bytes(), name, markup=html, hint=hint)
                encoding = encoding if html else UTF_8
                yield encoding.encode(self._result(text, steps, cancelled, html, 0).text)

        return run

    def _steps(self, stack: ExitStack) -> list[_Step]:
        """The translators to use one after the other; they cannot be unloaded meanwhile."""
        if self.source == self.target:
            return []
        try:
            pairs = [(self.source, self.target)]
            translators = [self.pool.translator(None, self.source, self.target)]
        except (ModelNotFound, UnsupportedTask):
            if PIVOT in (self.source, self.target):
                raise
            pairs = [(self.source, PIVOT), (PIVOT, self.target)]
            translators = [self.pool.translator(None, *pair) for pair in pairs]
            self.pivot = PIVOT
        from pipelines import TranslateOptions

        stack.enter_context(self.pool.using(*translators))
        return [
            _Step(
                translator,
                TranslateOptions(
                    target=target if translator.target_codes else None,
                    source_language=source,
                    priority=Priority.INTERACTIVE,
                ),
            )
            for translator, (source, target) in zip(translators, pairs, strict=True)
        ]

    def _result(
        self,
        text: str,
        steps: Sequence[_Step],
        cancelled: Callable[[], bool],
        html: bool,
        alternatives: int,
    ) -> TextResult:
        def translated(beam_size: int) -> str:
            def lines(texts: Iterable[str]) -> Iterator[Translation]:
                yield from self._lines(texts, steps, cancelled, beam_size, html)

            if html:
                return translate_html(text, lines)
            return "".join(translation.text for translation in lines([text]))

        if not steps:
            return TextResult(text)
        best = translated(1)
        others: dict[str, None] = {}
        for beam_size in _ALTERNATIVE_BEAMS:
            if len(others) >= alternatives:
                break
            if (other := translated(beam_size)) != best:
                others[other] = None
        return TextResult(best, tuple(others))

    def _lines(
        self,
        texts: Iterable[str],
        steps: Sequence[_Step],
        cancelled: Callable[[], bool],
        beam_size: int = 1,
        alignments: bool = False,
    ) -> Iterator[Translation]:
        """Translate texts by one step after the other; the alignment spans both."""
        step, *following = steps
        options = replace(step.options, beam_size=beam_size, word_alignments=alignments)
        for text in texts:
            found: list[Translation] = []
            stream = step.translator.stream(text, options)
            try:
                for event in stream:
                    if cancelled():
                        raise ApiError(503, "the request was cancelled")
                    if (translation := getattr(event, "translation", None)) is not None:
                        found.append(translation)
            finally:
                stream.close()
            (first,) = found
            self.metrics.count_translation(sum(len(s.tokens) for s in first.sentences))
            if not following:
                yield first
                continue
            (second,) = self._lines([first.text], following, cancelled, beam_size, alignments)
            yield _chained(first, second)

    def _subtitles(
        self, content: bytes, name: str, steps: Sequence[_Step], cancelled: Callable[[], bool]
    ) -> bytes:
        """Return the translation of a subtitle file; the suffix of its name says the format."""
        if not steps:
            return content
        hint = EncodingHint(language=self.source)
        file = parse(content, Path(name).suffix.lower().removeprefix("."), name, hint)
        for done in translate_subtitles(
            file, lambda texts: self._lines(texts, steps, cancelled, alignments=True)
        ):
            if isinstance(done, bytes):
                content = done
        return content


def _chained(first: Translation, second: Translation) -> Translation:
    """The translation of a translation, aligned with the first source."""
    one, two = first.alignment, second.alignment
    alignment = None
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
    )
