"""From texts to the sentences that go to the model, each with the language it shall become."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.errors import OptionError, UnsupportedTask
from pipelines.languages import (
    find_language,
    find_target,
    is_one_language,
    two_letter,
)
from pipelines.translation.decode import SentenceRequest
from pipelines.translation.text.passthrough import plain_quotes, split_passthrough
from pipelines.translation.text.sentences import SentenceSpan, split_sentences, split_to_fit
from pipelines.translation.tokenizers.base import TextTokenizer

__all__ = ["Preprocessor", "SourceLanguages", "TargetLanguages"]

_CODE = re.compile(r">>(\w{2,3}(?:[-_]\w+)?)<<")


@dataclass(frozen=True)
class SourceLanguages:
    """What a model translates from.

    codes: what it has to be told of a text; empty in a model that is told nothing.
    stated: what its files, its name or the user's settings say, or None.
    """

    model: str
    codes: tuple[str, ...]
    stated: str | None

    def choose(self, wanted: str | None) -> str | None:
        """The code to tell; None where the model is told nothing.

        Raises UnsupportedTask for a language that the model does not have, OptionError when it
        has to be told and nobody does.
        """
        if not self.codes:
            return None
        wanted = wanted or self.stated
        if not wanted:
            raise OptionError(
                f"{self.model} needs the language of the text (--from); "
                f"it has {', '.join(self.codes)}"
            )
        code = find_language(wanted, self.codes)
        if code is None:
            raise UnsupportedTask(
                f"{self.model} does not translate from {wanted!r}; it has {', '.join(self.codes)}"
            )
        return code


@dataclass(frozen=True)
class TargetLanguages:
    """What a model translates into.

    codes: what its vocabulary can be asked for; empty in a model for one language.
    one_each: it has one code for each language and script, so that near ones will do.
    stated: the target language that its files or its name state, or None.
    """

    model: str
    codes: tuple[str, ...]
    stated: str | None
    one_each: bool = False

    def choose(self, wanted: str) -> str | None:
        """The code to ask for; None where the model needs none.

        Raises UnsupportedTask for a language that the model does not have.
        """
        code = self._find(wanted)
        plain = two_letter(wanted.strip().removeprefix(">>").removesuffix("<<"))
        if code is not None or (self.stated and plain == two_letter(self.stated)):
            return code
        if self.codes:
            raise UnsupportedTask(
                f"{self.model} does not translate into {wanted!r}; it has {', '.join(self.codes)}"
            )
        if is_one_language(self.stated):
            raise UnsupportedTask(
                f"{self.model} translates into {self.stated} only, not into {wanted!r}"
            )
        return None

    def default(self) -> str | None:
        """The code to use when nobody chose.

        Raises OptionError for a model that would not know which language to speak.
        """
        code = self._find(self.stated) if self.stated else None
        if code is None and self.codes and not is_one_language(self.stated):
            raise OptionError(
                f"{self.model} needs a target language; it has {', '.join(self.codes)}"
            )
        return code

    def _find(self, wanted: str) -> str | None:
        return (find_language if self.one_each else find_target)(wanted, self.codes)


@dataclass(frozen=True)
class Preprocessor:
    """Cuts texts for one model and one choice of options.

    target: one of the model's codes, or None for its default.
    origin: what the model is told of the source's language. longest: the most tokens of a
    source, with all that the model wants around it.
    language: whose rules find the sentences. split: False takes each line as one sentence.
    """

    tokenizer: TextTokenizer
    targets: TargetLanguages
    target: str | None
    origin: str | None
    longest: int
    language: str | None
    split: bool
    priority: int
    beams: int = 1
    aligned: bool = False

    def jobs(self, text: str) -> Iterator[SentenceRequest]:
        """What to translate of a text, in order; at least one job, the last with `whole` set.

        Raises UnsupportedTask when the text asks for a target that the model lacks, and
        OptionError when neither it nor the options choose among several.
        """
        code, body, notes = self._choose(text)
        job = SentenceRequest("", warnings=notes, aligned=self.aligned)
        for index, following in enumerate(self._sentences(body, code)):
            if index:
                yield job
            else:
                following.warnings = (*notes, *following.warnings)
            job = following
        job.whole = text
        yield job

    def _choose(self, text: str) -> tuple[str | None, str, tuple[str, ...]]:
        """(target code, the text without it, warnings)."""
        body = text.lstrip()
        match = _CODE.match(body)
        if match is None:
            return self._default(body), text, ()
        targets = self.targets
        as_text = (f"{targets.model} knows no {match[0]}; taken as text",)
        if not targets.codes and two_letter(match[1]) != two_letter(targets.stated):
            # A model without codes reads them as any other text; so it stays text.
            return None, text, as_text
        try:
            code = targets.choose(match[1])
        except UnsupportedTask:
            if self.target is None:
                raise
            return self.target, text, as_text  # one line of many is not to cost the others
        space = text[: len(text) - len(body)]
        return code, space + body[match.end() :].lstrip(" "), ()

    def _default(self, body: str) -> str | None:
        if self.target is not None or not body:
            return self.target
        return self.targets.default()

    def _sentences(self, body: str, code: str | None) -> Iterator[SentenceRequest]:
        for span in split_sentences(body, self.language, lines_only=not self.split):
            for part, keep in split_passthrough(span, self.language, self._unreadable):
                # Numbers and marks alone mean the same everywhere.
                if keep or not any(char.isalpha() for char in part.text):
                    yield self._kept(part)
                else:
                    yield from self._translated(part, code)

    def _kept(self, span: SentenceSpan) -> SentenceRequest:
        words = any(char.isalpha() for char in span.text) and self._unreadable(span.text)
        warnings = ("the model does not know it; kept as it is",) if words else ()
        return SentenceRequest(
            span.text,
            span.before,
            priority=self.priority,
            warnings=warnings,
            aligned=self.aligned,
        )

    def _translated(self, span: SentenceSpan, code: str | None) -> Iterator[SentenceRequest]:
        """Jobs for a part of a sentence, as many as it takes to fit the model."""
        first, *rest = split_to_fit(
            span.text, self.longest, lambda text: len(self._ids(text, code))
        )
        for part in (SentenceSpan(span.before, first.text), *rest):
            unknown = self.tokenizer.unknown(self._quotes(part.text))
            yield SentenceRequest(
                part.text,
                part.before,
                ids=self._ids(part.text, code),
                code=code,
                origin=self.origin,
                priority=self.priority,
                beams=self.beams,
                aligned=self.aligned,
                warnings=(f"the model does not know {' '.join(unknown)!r}",) if unknown else (),
            )

    def _ids(self, text: str, code: str | None) -> list[int]:
        return self.tokenizer.encode(self._plain(text), code, self.origin)

    def _unreadable(self, text: str) -> bool:
        return bool(self.tokenizer.unknown(self._plain(text)))

    def _plain(self, text: str) -> str:
        """A text as the model is to read it, unknown letters bare."""
        text = self._quotes(text)
        for piece in self.tokenizer.unknown(text):
            text = text.replace(piece, _without_accents(piece))
        return text

    def _quotes(self, text: str) -> str:
        return plain_quotes(text) if self.tokenizer.plain_quotes else text


def _without_accents(text: str) -> str:
    """Letters without their accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
