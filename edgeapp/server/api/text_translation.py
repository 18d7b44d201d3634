"""Texts → translations, directly or through English, as generators for a thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
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
from pipelines import ModelNotFound
from pipelines.errors import UnsupportedTask
from pipelines.languages import PIVOT, pairs_through_english

if TYPE_CHECKING:
    from pipelines import Translation
    from pipelines.translation import PairTranslator

__all__ = ["TextResult", "TextTranslation", "translatable_pairs"]

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


def translatable_pairs() -> dict[str, set[str]]:
    """Source language → target languages of the installed models, through English too."""
    direct: dict[str, set[str]] = {}
    for sources, targets in picker_options().translators.values():
        for source in sources:
            direct.setdefault(source, set()).update(targets - {source})
    return pairs_through_english(direct)


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
                translator = self._translator(stack)
                for text in texts:
                    yield self._result(text, translator, cancelled, html, alternatives)

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
                translator = self._translator(stack)
                if is_subtitle_file(name):
                    yield self._subtitles(path.read_bytes(), name, translator, cancelled)
                    return
                html = name.lower().endswith(HTML_SUFFIXES)
                hint = EncodingHint(language=self.source)
                text, encoding = decode_text(path.read_bytes(), name, markup=html, hint=hint)
                encoding = encoding if html else UTF_8
                yield encoding.encode(self._result(text, translator, cancelled, html, 0).text)

        return run

    def _translator(self, stack: ExitStack) -> PairTranslator | None:
        """The translator, whose models cannot be unloaded meanwhile; None for one language."""
        if self.source == self.target:
            return None
        try:
            translators = [self.pool.translator(None, self.source, self.target)]
        except (ModelNotFound, UnsupportedTask):
            if PIVOT in (self.source, self.target):
                raise
            pairs = [(self.source, PIVOT), (PIVOT, self.target)]
            translators = [self.pool.translator(None, *pair) for pair in pairs]
            self.pivot = PIVOT
        from pipelines.translation import PairTranslator

        stack.enter_context(self.pool.using(*translators))
        return PairTranslator(translators, self.source, self.target)

    def _result(
        self,
        text: str,
        translator: PairTranslator | None,
        cancelled: Callable[[], bool],
        html: bool,
        alternatives: int,
    ) -> TextResult:
        if translator is None:
            return TextResult(text)

        def translated(beam_size: int) -> str:
            def lines(texts: Iterable[str]) -> Iterator[Translation]:
                yield from self._lines(texts, translator, cancelled, beam_size, html)

            if html:
                return translate_html(text, lines)
            return "".join(translation.text for translation in lines([text]))

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
        translator: PairTranslator,
        cancelled: Callable[[], bool],
        beam_size: int = 1,
        alignments: bool = False,
    ) -> Iterator[Translation]:
        """Translate texts, and count their tokens."""
        from pipelines import TranslateOptions

        options = TranslateOptions(
            beam_size=beam_size, word_alignments=alignments, priority=Priority.INTERACTIVE
        )
        for text in texts:
            found: Translation | None = None
            with closing(translator.stream(text, options)) as events:
                for event in events:
                    if cancelled():
                        raise ApiError(503, "the request was cancelled")
                    found = getattr(event, "translation", found)
            assert found is not None, "the last event of a text is its translation"
            for each in filter(None, (found.via, found)):
                self.metrics.count_translation(sum(len(s.tokens) for s in each.sentences))
            yield found

    def _subtitles(
        self,
        content: bytes,
        name: str,
        translator: PairTranslator | None,
        cancelled: Callable[[], bool],
    ) -> bytes:
        """Return the translation of a subtitle file; the suffix of its name says the format."""
        if translator is None:
            return content
        hint = EncodingHint(language=self.source)
        file = parse(content, Path(name).suffix.lower().removeprefix("."), name, hint)
        for done in translate_subtitles(
            file, lambda texts: self._lines(texts, translator, cancelled, alignments=True)
        ):
            if isinstance(done, bytes):
                content = done
        return content
