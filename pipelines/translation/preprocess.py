"""Preprocessing: texts → sentence requests, each with its target language and source ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipelines.errors import OptionError, UnsupportedTask
from pipelines.languages import (
    find_language,
    find_target,
    is_one_language,
    two_letter,
)
from pipelines.translation.decode import SentenceChoices, SentenceRequest, TextEnd
from pipelines.translation.text.invisible import isolates_within, visible
from pipelines.translation.text.passthrough import is_link, split_passthrough
from pipelines.translation.text.sentences import SentenceSpan, split_sentences, split_to_fit
from pipelines.translation.tokenizers.base import (
    TextTokenizer,
    encode_normalized,
    normalize,
    normalize_quotes,
)

_TARGET_PREFIX = re.compile(r">>(\w{2,3}(?:[-_]\w+)?)<<")


@dataclass(frozen=True)
class SourceLanguages:
    """The languages that a model translates from.

    Attributes:
        model: Its name, for messages.
        codes: The tokenizer's source codes; empty for a model that needs none.
        default: The language by the model's files, its name or the settings, or None.
    """

    model: str
    codes: tuple[str, ...]
    default: str | None

    def choose(self, requested: str | None) -> str | None:
        """The source code for a requested language; None for a model that needs none.

        Raises:
            UnsupportedTask: The model lacks the language.
            OptionError: The model needs a source language, and there is no default.
        """
        if not self.codes:
            return None
        requested = requested or self.default
        if not requested:
            raise OptionError(
                f"{self.model} needs the option source_language; it has {', '.join(self.codes)}"
            )
        code = find_language(requested, self.codes)
        if code is None:
            raise UnsupportedTask(
                f"{self.model} does not translate from {requested!r}; "
                f"it has {', '.join(self.codes)}"
            )
        return code


@dataclass(frozen=True)
class TargetLanguages:
    """The languages that a model translates into.

    Attributes:
        model: Its name, for messages.
        codes: The tokenizer's target codes; empty for a model with one target.
        default_language: The target language by the model's files or its name, or None.
        match_variants: There is one code for each language and script, and a request for a region
            ("pt-BR") matches the code of its language.
    """

    model: str
    codes: tuple[str, ...]
    default_language: str | None
    match_variants: bool = False

    def choose(self, requested: str) -> str | None:
        """The target code for a requested language; None for a model that needs none.

        Raises:
            UnsupportedTask: The model lacks the language.
        """
        code = self._find(requested)
        short = two_letter(requested.strip().removeprefix(">>").removesuffix("<<"))
        if code is not None or (
            self.default_language and short == two_letter(self.default_language)
        ):
            return code
        if self.codes:
            raise UnsupportedTask(
                f"{self.model} does not translate into {requested!r}; "
                f"it has {', '.join(self.codes)}"
            )
        if is_one_language(self.default_language):
            raise UnsupportedTask(
                f"{self.model} translates into {self.default_language} only, not into {requested!r}"
            )
        return None

    def default(self) -> str | None:
        """The target code where none is requested; None for a model that needs none.

        Raises:
            OptionError: The model has several targets and no default.
        """
        code = self._find(self.default_language) if self.default_language else None
        if code is None and self.codes and not is_one_language(self.default_language):
            raise OptionError(
                f"{self.model} needs a target language; it has {', '.join(self.codes)}"
            )
        return code

    def _find(self, requested: str) -> str | None:
        return (find_language if self.match_variants else find_target)(requested, self.codes)


@dataclass(frozen=True)
class Preprocessor:
    """Splits texts into requests, for one model and one set of options.

    Attributes:
        tokenizer: The model's tokenizer.
        targets: The model's target languages.
        target_language: One of their codes; None for the model's default.
        source_language: One of the tokenizer's source codes; None for a model that needs none.
        max_source_tokens: Source ids of a request at most, special tokens included.
        sentence_language: The language whose rules find sentences, or None.
        split_sentences: False takes each line as one sentence.
        whole_lines: A line with letters is one request, links and all.
        priority, beam_size, word_alignments: Those of the requests.
        first_choices, choices: Those of the first request with source ids of a text, and of the
            others.
    """

    tokenizer: TextTokenizer
    targets: TargetLanguages
    target_language: str | None
    source_language: str | None
    max_source_tokens: int
    sentence_language: str | None
    split_sentences: bool
    whole_lines: bool
    priority: int
    beam_size: int = 1
    word_alignments: bool = False
    first_choices: SentenceChoices = SentenceChoices()
    choices: SentenceChoices = SentenceChoices()

    def requests(self, text: str) -> Iterator[SentenceRequest | TextEnd]:
        """Yield the sentences of a text, the last one with its `end`; only that if it has none.

        Raises:
            UnsupportedTask: The text names a target language that the model lacks, and the
                options name none.
            OptionError: Neither the text nor the options name one of several targets.
        """
        target, body, warnings = self._target_of(text)
        choices, space = self.first_choices, ""
        last: SentenceRequest | None = None
        for request in self._sentence_requests(body, target):
            if not request.source:
                space = request.leading_space
                continue
            if last is None:
                request = replace(request, warnings=(*warnings, *request.warnings))
            else:
                yield last
            if request.source_ids:
                request, choices = replace(request, choices=choices), self.choices
            last = request
        end = TextEnd(text, space, self.word_alignments)
        yield end if last is None else replace(last, end=end)

    def _target_of(self, text: str) -> tuple[str | None, str, tuple[str, ...]]:
        """(target code, the text without a leading ">>xxx<<", warnings)."""
        body = text.lstrip()
        match = _TARGET_PREFIX.match(body)
        if match is None:
            return self._default_target(body), text, ()
        targets = self.targets
        as_text = (f"{targets.model} has no language {match[0]}; read as text",)
        if not targets.codes and two_letter(match[1]) != two_letter(targets.default_language):
            # A model without target codes has no such token.
            return None, text, as_text
        try:
            code = targets.choose(match[1])
        except UnsupportedTask:
            if self.target_language is None:
                raise
            # One bad line of many does not end the translation of the others.
            return self.target_language, text, as_text
        space = text[: len(text) - len(body)]
        return code, space + body[match.end() :].lstrip(" "), ()

    def _default_target(self, body: str) -> str | None:
        if self.target_language is not None or not body:
            return self.target_language
        return self.targets.default()

    def _sentence_requests(self, body: str, target: str | None) -> Iterator[SentenceRequest]:
        seen = visible(body)
        if body.strip() and not seen.text.strip():
            yield self._request_to_copy(SentenceSpan("", body))
            return
        lines_only = self.whole_lines or not self.split_sentences
        spans = split_sentences(seen.text, self.sentence_language, lines_only)
        for span, isolates in seen.with_marks(spans):
            at = -len(span.leading_space)
            for request in self._requests_of(span, target):
                at += len(request.leading_space)
                end = at + len(request.source)
                yield replace(request, isolates=isolates_within(isolates, at, end))
                at = end

    def _requests_of(self, span: SentenceSpan, target: str | None) -> Iterator[SentenceRequest]:
        """Requests for a sentence: its parts to translate and to copy."""
        if self.whole_lines and any(char.isalpha() for char in span.text):
            yield from self._requests_to_translate(span, target)
            return
        language = self.sentence_language
        for part, keep in split_passthrough(span, language, self._has_unknown):
            # Without letters (numbers, marks) there is nothing to translate.
            if keep or not any(char.isalpha() for char in part.text):
                yield self._request_to_copy(part)
            else:
                yield from self._requests_to_translate(part, target)

    def _request_to_copy(self, span: SentenceSpan) -> SentenceRequest:
        unknown = not is_link(span.text) and self._has_unknown(span.text)
        warnings = ("not in the model's vocabulary; kept as it is",) if unknown else ()
        return SentenceRequest(
            span.text,
            span.leading_space,
            priority=self.priority,
            warnings=warnings,
            word_alignments=self.word_alignments,
        )

    def _requests_to_translate(
        self, span: SentenceSpan, target: str | None
    ) -> Iterator[SentenceRequest]:
        """Requests for a part of a sentence: as many as are needed to fit the model."""
        first, *rest = split_to_fit(
            span.text, self.max_source_tokens, lambda text: len(self._ids(text, target))
        )
        for part in (SentenceSpan(span.leading_space, first.text), *rest):
            unknown = self.tokenizer.unknown(normalize_quotes(self.tokenizer, part.text))
            warning = f"not in the model's vocabulary: {' '.join(unknown)!r}"
            yield SentenceRequest(
                part.text,
                part.leading_space,
                source_ids=self._ids(part.text, target),
                target_language=target,
                source_language=self.source_language,
                priority=self.priority,
                beam_size=self.beam_size,
                word_alignments=self.word_alignments,
                warnings=(warning,) if unknown else (),
            )

    def _ids(self, text: str, target: str | None) -> list[int]:
        return encode_normalized(self.tokenizer, text, target, self.source_language)

    def _has_unknown(self, text: str) -> bool:
        return bool(self.tokenizer.unknown(normalize(self.tokenizer, text)))
