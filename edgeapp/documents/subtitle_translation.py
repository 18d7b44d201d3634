"""Subtitles translated by whole sentences, and put back onto their cues.

A sentence that runs over several cues is translated as one. The decoder's own attention (the word
alignment) says which words of the translation belong to which cue; reading speed and line breaks
decide between places that fit equally well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgeapp.documents.subtitle_file import SubtitleFile
from edgeapp.documents.subtitle_markup import Tag, Utterance, line_break, render_cue, utterances
from edgeapp.subtitles.line_breaks import break_cost, display_width, words_to_break
from edgeapp.subtitles.segmenter import ends_sentence
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle

if TYPE_CHECKING:
    from pipelines import Translation

__all__ = ["Passage", "passages", "translate_subtitles"]

_MAX_PAUSE_S = 2.0  # a longer pause ends a sentence, even without punctuation
_MAX_PASSAGE_S = 30.0
_MAX_PASSAGE_CHARACTERS = 400
_MAX_FRAGMENTS = 16  # of a passage
_MAX_PAIRS = 1_000  # of the parts of two linked words
_MAX_TAGS = 50  # inside an utterance; more are dropped
_ELLIPSES = ("...", "…")

# Costs of a place where the translation is divided, in links that lead to another cue.
_BREAK_WEIGHT = 0.15
_OVER_SPEED = 0.15  # of each character that cannot be read in time
_OVER_LINES = 2.0  # of a cue that needs more lines than it may have
_EMPTY = 1000.0


@dataclass(frozen=True)
class _Fragment:
    """A part of a passage: an utterance of a cue."""

    cue: int
    index: int
    utterance: Utterance


@dataclass(frozen=True)
class Passage:
    """Whole sentences, over one or more cues.

    Attributes:
        fragments: The utterances that it consists of.
    """

    fragments: tuple[_Fragment, ...]

    @property
    def text(self) -> str:
        """What is translated."""
        text = ""
        for start, fragment in zip(self.starts, self.fragments, strict=True):
            text = text.ljust(start) + fragment.utterance.text
        return text

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each fragment begins in `text`."""
        starts, length, last = [], 0, ""
        for fragment in self.fragments:
            text = fragment.utterance.text
            wide = bool(last) and display_width(last) == display_width(text[0]) == 2
            length += 1 if last and not wide else 0
            starts.append(length)
            length, last = length + len(text), text[-1]
        return tuple(starts)


def passages(file: SubtitleFile) -> list[Passage]:
    """The passages of a file, in order. Sounds, songs and empty cues are in none."""
    found: list[Passage] = []
    open_fragments: list[_Fragment] = []

    def close() -> None:
        if open_fragments:
            found.append(Passage(tuple(open_fragments)))
            open_fragments.clear()

    for number, cue in enumerate(file.cues):
        parts = utterances(cue.text, file.format)
        for index, utterance in enumerate(parts):
            if not utterance.text:
                close()
                continue
            if open_fragments and not _continues(file, open_fragments, utterance, number):
                close()
            open_fragments.append(_Fragment(number, index, utterance))
            if index + 1 < len(parts):
                close()  # the next utterance of the cue is another speaker's
    close()
    return found


def _continues(
    file: SubtitleFile, fragments: Sequence[_Fragment], utterance: Utterance, number: int
) -> bool:
    """Whether an utterance of cue `number` goes on with the sentence of the fragments."""
    before = fragments[-1].utterance.text
    cue, first, last = file.cues[number], file.cues[fragments[0].cue], file.cues[fragments[-1].cue]
    interrupted = before.endswith(_ELLIPSES) and (
        utterance.text.startswith(_ELLIPSES) or utterance.text[0].islower()
    )
    if file.format == "lrc" and not utterance.text[0].islower():
        return False  # a line of a song is a unit, although few end with a full stop
    return (
        (interrupted or not ends_sentence(before))
        and not utterance.labelled
        and cue.start - last.end <= _MAX_PAUSE_S
        and cue.end - first.start <= _MAX_PASSAGE_S
        and sum(len(f.utterance.text) for f in fragments) < _MAX_PASSAGE_CHARACTERS
        and len(utterance.text) < _MAX_PASSAGE_CHARACTERS
        and len(fragments) < _MAX_FRAGMENTS
    )


def translate_subtitles(
    file: SubtitleFile,
    translate_lines: Callable[[Iterable[str]], Iterator[Translation]],
    *,
    style: SubtitleStyle = DEFAULT_STYLE,
    bilingual: bool = False,
) -> Iterator[Translation | bytes]:
    """Translate a subtitle file.

    Args:
        file: The subtitles.
        translate_lines: Translates texts in order, with word alignments where the model has them.
        style: Width of the lines, and reading speed.
        bilingual: Keep the original lines, with the translation below them.

    Yields:
        The translation of each passage, as it is done; last the content of the translated file.
    """
    parts: list[list[tuple[Utterance, str, Sequence[Tag]]]] = [
        [(utterance, "", ()) for utterance in utterances(cue.text, file.format)]
        for cue in file.cues
    ]
    found = passages(file)
    for passage, translation in zip(
        found, translate_lines(passage.text for passage in found), strict=True
    ):
        yield translation
        for fragment, text, tags in _put_back(file, passage, translation, style):
            parts[fragment.cue][fragment.index] = (fragment.utterance, text, tags)
    texts = []
    for number, (cue, cue_parts) in enumerate(zip(file.cues, parts, strict=True)):
        if not any(utterance.text for utterance, _, _ in cue_parts):
            texts.append(cue.text)
            continue
        lines = max(1, style.max_lines // len(cue_parts))
        text = render_cue(cue_parts, file.format, style.max_line_width, lines)
        if bilingual and text != cue.text:
            # A second line of lyrics has the times of the first.
            times = file.between[number].rpartition("\n")[2] if file.format == "lrc" else ""
            text = cue.text.rstrip() + line_break(file.format) + times + text
        texts.append(text)
    yield file.render(texts)


def _put_back(
    file: SubtitleFile, passage: Passage, translation: Translation, style: SubtitleStyle
) -> Iterator[tuple[_Fragment, str, tuple[Tag, ...]]]:
    """Each fragment of a passage with its part of the translation and the tags inside that."""
    words = _Words.of(passage, translation)
    edges = _divide(file, passage, words, style)
    before = ""
    for number, fragment in enumerate(passage.fragments):
        start, end = edges[number], edges[number + 1]
        text = words.text(start, end)
        tags: tuple[Tag, ...] = ()
        if text:
            tags = tuple(_moved_tags(fragment.utterance, number, words, start, end))
        # Fewer words than cues: the words stay on the screen.
        before = text or before or translation.text.replace("\n", " ").strip()
        yield fragment, text or before, tags


@dataclass(frozen=True)
class _Words:
    """The words of a translation, and where each comes from.

    Attributes:
        target: The words, each with the space before it.
        fragment_words: For each fragment the (start, end) of its source words, in the fragment.
        links: For each target word, the (fragment, source word of it) that it comes from.
    """

    target: tuple[str, ...]
    fragment_words: tuple[tuple[tuple[int, int], ...], ...]
    links: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def of(cls, passage: Passage, translation: Translation) -> _Words:
        text = translation.text.replace("\n", " ")
        alignment = translation.alignment
        target = words_to_break(text)
        source_spans = _spans(passage.text)
        starts = passage.starts
        owner = [bisect_right(starts, start) - 1 for start, _ in source_spans]
        within: list[list[tuple[int, int]]] = [[] for _ in passage.fragments]
        places: list[tuple[int, int]] = []
        for (start, end), fragment in zip(source_spans, owner, strict=True):
            places.append((fragment, len(within[fragment])))
            within[fragment].append((start - starts[fragment], end - starts[fragment]))
        links: list[set[tuple[int, int]]] = [set() for _ in target]
        if alignment is not None and alignment.links:
            in_source = [_overlapping(span, source_spans) for span in alignment.source_words]
            target_spans = _spans(text)
            in_target = [_overlapping(span, target_spans) for span in alignment.target_words]
            for i, j in alignment.links:
                sources, linked = in_source[i], in_target[j]
                if len(sources) * len(linked) > _MAX_PAIRS:
                    # A word of the model without spaces: its characters are in the same order.
                    for k, target_word in enumerate(linked):
                        place = places[sources[k * len(sources) // len(linked)]]
                        links[target_word].add(place)
                    continue
                for source_word in sources:
                    for target_word in linked:
                        links[target_word].add(places[source_word])
        elif places:
            # Without attention to ask, the words are taken to be in the same order.
            for index in range(len(target)):
                links[index].add(places[index * len(places) // len(target)])
        return cls(
            tuple(target),
            tuple(map(tuple, within)),
            tuple(tuple(sorted(places)) for places in links),
        )

    def text(self, start: int, end: int) -> str:
        """The words from start to end as a text."""
        return "".join(self.target[start:end]).strip()


def _spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each word, as words_to_break divides the text."""
    spans, at = [], 0
    for word in words_to_break(text):
        at = text.index(word, at)
        spans.append((at + len(word) - len(word.lstrip()), at + len(word)))
        at += len(word)
    return spans


def _overlapping(span: tuple[int, int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Indices of the spans, which are in order, that a span has a part of."""
    first = bisect_right(spans, span[0], key=lambda each: each[1])
    return list(range(first, bisect_left(spans, span[1], key=lambda each: each[0])))


def _divide(file: SubtitleFile, passage: Passage, words: _Words, style: SubtitleStyle) -> list[int]:
    """Indices of the words at which the fragments begin, and the end: of least cost.

    The cost of a division: links to other cues by their distance, breaks that read badly, and
    characters that cannot be read while the cue is shown, and lines that it may not have.
    """
    count, total = len(passage.fragments), len(words.target)
    if count == 1:
        return [0, total]
    widths = [display_width(word) for word in words.target]
    # best[i]: (cost, division) of the first i words among the fragments so far
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, (0,))}
    for number, fragment in enumerate(passage.fragments):
        cue = file.cues[fragment.cue]
        readable = min(
            style.max_characters, max(1.0, (cue.end - cue.start) * style.max_characters_per_s)
        )
        foreign = [
            sum(abs(origin - number) for origin, _ in links) / max(1, len(links))
            for links in words.links
        ]
        following: dict[int, tuple[float, tuple[int, ...]]] = {}
        for start, (cost, division) in best.items():
            so_far, width = cost, 0
            lines, length = 0, 0  # of the words from start to end, filled line by line
            last = number == count - 1
            for end in range(start, total + 1):
                if end > start:
                    so_far += foreign[end - 1]
                    columns = widths[end - 1]
                    width += columns
                    if lines and length + columns <= style.max_line_width:
                        length += columns
                    else:
                        lines, length = lines + 1, display_width(words.target[end - 1].lstrip())
                if last and end < total:
                    continue
                candidate = so_far + _OVER_SPEED * max(0.0, width - readable)
                if lines > style.max_lines:
                    candidate += _OVER_LINES
                if end == start:
                    candidate += _EMPTY
                elif end < total:
                    at_break = break_cost(words.target[end - 1], words.target[end])
                    candidate += _BREAK_WEIGHT * at_break
                if end not in following or candidate < following[end][0]:
                    following[end] = (candidate, (*division, end))
        best = following
    return list(best[total][1])


def _moved_tags(
    utterance: Utterance, number: int, words: _Words, start: int, end: int
) -> Iterator[Tag]:
    """The tags inside an utterance at the words of the translation that they belong to.

    An opening tag goes before the first word that comes from the tagged ones, a closing tag after
    the last. A pair whose words are not in this part of the translation is dropped.
    """
    if len(utterance.tags) > _MAX_TAGS:
        return
    spans = words.fragment_words[number]
    stack: list[tuple[int, Tag]] = []
    moved: list[tuple[int, Tag]] = []  # with their order in the source
    for order, tag in enumerate(utterance.tags):
        if not tag.text.startswith("<"):
            alone = _moved_alone(tag, spans, number, words, start, end)
            moved += ((order, each) for each in alone)
        elif not tag.closes:
            stack.append((order, tag))
        elif stack:
            opened, opening = stack.pop()
            tagged = {
                i for i, (a, b) in enumerate(spans) if a < tag.position and opening.position < b
            }
            found = [
                j
                for j in range(start, end)
                if any(origin == number and word in tagged for origin, word in words.links[j])
            ]
            if found:
                first, last = _offsets(words, start, found[0]), _offsets(words, start, found[-1])
                moved += [
                    (opened, replace(opening, position=first[0])),
                    (order, replace(tag, position=last[1])),
                ]
    yield from (tag for _, tag in sorted(moved, key=lambda each: (each[1].position, each[0])))


def _moved_alone(
    tag: Tag,
    spans: Sequence[tuple[int, int]],
    number: int,
    words: _Words,
    start: int,
    end: int,
) -> Iterator[Tag]:
    """A tag without a partner, such as a block of ass, at the word that it stands next to."""
    if tag.closes:
        neighbours = [i for i, (_, b) in enumerate(spans) if b <= tag.position][-1:]
    else:
        neighbours = [i for i, (a, _) in enumerate(spans) if a >= tag.position][:1]
    found = [j for j in range(start, end) for i in neighbours if (number, i) in words.links[j]]
    if found:
        first, last = _offsets(words, start, found[0]), _offsets(words, start, found[-1])
        yield replace(tag, position=last[1] if tag.closes else first[0])


def _offsets(words: _Words, start: int, index: int) -> tuple[int, int]:
    """(start, end) of a word in the text of the words from `start` on."""
    before = "".join(words.target[start:index]).lstrip()
    word = words.target[index] if before else words.target[index].lstrip()
    space = len(word) - len(word.lstrip())
    return len(before) + space, len(before) + len(word)
