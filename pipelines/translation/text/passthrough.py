"""The parts of a sentence that are copied instead of translated.

List markers, links, enclosing quotes and words outside the vocabulary make a translation worse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pipelines.languages import two_letter
from pipelines.translation.text.sentences import SentenceSpan

_BULLET = r"[-–—*•‣◦▪·>#+]+|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,4})\)"
_MARKER = re.compile(rf"(?:(?:{_BULLET})\s+)+(?=\S)")
_NUMBERED = re.compile(rf"(?:(?:{_BULLET}|\d{{1,3}}\.)\s+)+(?=\S)")
# Languages that write ordinals with a dot ("5. Mai"): there a number with a dot is no list marker.
_ORDINAL_DOT = frozenset("bs cs da de et eu fi hr hu is lb lt lv nb nn no pl sk sl sr tr".split())

_LINK = re.compile(
    r">>[\w-]{2,20}<<"
    r"|(?:https?://|ftp://|file://|mailto:|www\.)[^\s<>\"]*[\w/]"
    r"|\b[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}\w{2,}"
    r"|\b(?:[a-z0-9-]{1,63}\.){1,8}(?:com|org|net|edu|gov|io|dev)\b(?:/[^\s<>\"]*[\w/])?"
    # Keys, checksums, ASCII art: longer than words are.
    r"|[a-z0-9+/=_]{50,}"
    # {name}, ${name}, %{name}, {0:.2f}, {name!r}; {{name}}, {{ name | filter }}, {{#if x}}.
    r"|[$%#@]?\{\s?[^\s{}]{0,80}\s?\}(?:%(?![\w%]))?|[$%#@]?\{{2,3}[^{}\n]{1,120}\}{2,3}"
    # {0,number}, {n, plural, …}; { $n -> … }; {% if x %}, <%= x %>; [[name]].
    r"|[$%#@]?\{\s?\w{1,40}\s?,\s?\w{1,20}[^{}\n]{0,80}(?:\{[^{}\n]{0,200}\}[^{}\n]{0,80}){0,12}\}"
    r"|\{\s?\$[^{}\n]{1,200}\}|\{%[^{}\n]{1,120}%\}|<[%?][^<>\n]{1,120}[%?]>"
    r"|\[\[[^\[\]\n]{1,80}\]\]"
    # $t(key), $(name), $[name]; $name, $user->name, $NAME$.
    r"|(?<!\w)\$(?:[a-z_]\w{0,40})?(?:\([^()\n]{1,200}\)|\[[^\[\]\n]{1,80}\])"
    r"|(?<!\w)\$[a-z_]\w{0,60}(?:(?:->|\.)\w{1,40}){0,5}\$?"
    # @:key, @.lower:key, @:(key), @:{'key'}; @name; :name, :smile:; @@name@@, ##name##, __name__.
    r"|(?<!\w)@(?:\.\w{1,20})?:(?:\w(?:[\w.-]{0,60}\w)?|\([^()\n]{1,80}\)|\{[^{}\n]{1,80}\})"
    r"|(?<![\w@])@[a-z_](?:[\w./@-]{0,80}\w)?"
    # Behind a space: "10 %:n" and "[10:30]:Hello" are none; nor are ":D" and Markdown's __bold__.
    r"|(?:(?<=[\s(\[{>\"'])|^):(?:[a-z_]\w{1,60}:|(?-i:[a-z][a-z0-9_]{1,60}\b))"
    r"|(?<!\w)(?:@@\w{1,60}@@|##\w{1,60}##|__[a-z]\w{0,40}_[a-z]\w{0,40}__)(?!\w)"
    r"|(?<!\w)(?-i:__[A-Z]\w{0,60}__)(?!\w)"
    # %s, %1$s, %(name)s, %<name>s, %.2f, %-10s, %*d; %%, %L1, %#@files@; %name, %NAME%.
    # Not behind a number: "5%-os". Turkish writes "%5".
    r"|(?<!\d)(?<!\d\s)%(?:\d{1,2}\$|\(\w{1,40}\)|<\w{1,40}>|\[\d{1,2}\])?[-+#0]{0,3}(?:\d{0,3}|\*)"
    r"(?:\.(?:\d{1,2}|\*))?(?:hh?|ll?|[zqtj])?[a-z@](?!\w)"
    r"|%%(?!\w)|(?<!\w)%L[1-9](?!\w)|%#@\w{1,40}@"
    r"|(?<!\d)(?<!\d\s)%[a-z_]\w{1,60}%?"
    # Escapes of program texts, "one\nTwo", but not C:\new; #42.
    r"|(?-i:\\[nrt](?![a-z0-9_]))|(?<![\w&#])#\d{1,9}\b"
    # &nbsp;, &#39;
    r"|&(?:#\d{1,7}|#x[\da-f]{1,6}|nbsp|amp|lt|gt|quot|apos|copy|reg|trade|hellip|[nm]dash|shy|[lr]aquo"
    r"|[lr][sd]quo|euro|pound|deg|middot|bull|times);"
    # Tags: <x/>, <b>, </g>, <x id="1"/>.
    r"|</?[a-z][\w:.-]{0,40}(?:\s{1,3}[\w:.-]{1,40}=(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}'))*\s?/?>",
    re.IGNORECASE,
)
# The model drops these at the beginning of a text.
_AFTER_LINK = re.compile(r"(?:[)\]}»”\"]{1,3}(?=[\s.,;:!?]|$))?(?:[,;:](?=\s))?")
_WORD = re.compile(r"\S+")
_EDGES = re.compile(r"[\W_]*(?=[^\W_])|[\W_]*$")

_DOUBLE = '"“”„‟«»'
_PAIRS = {"(": ")", "[": "]", "'": "'", "‘": "’"}
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_PLAIN = str.maketrans("“”„‟‘’‚‛", "\"\"\"\"''''")


def plain_quotes(text: str) -> str:
    """Text with typewriter quotes, the only ones in the training data of Marian models.

    Source: normalize-punctuation.perl of the Moses toolkit.
    """
    return text.translate(_PLAIN)


def is_link(text: str) -> bool:
    """Whether a text is only links, placeholders and marks, which are copied for what they are."""
    return not any(map(str.isalpha, _LINK.sub("", text)))


def without_added_stop(source: str, translation: str) -> str:
    """Remove a full stop at the end of a translation that its source (a heading) lacks."""
    *_, word = translation.split() or [""]
    if word.find(".") < len(word) - 1 or len(word) < 2 or not source[-1:].isalnum():
        return translation
    return translation[:-1]


def split_passthrough(
    span: SentenceSpan, language: str | None, has_unknown: Callable[[str], bool]
) -> Iterator[tuple[SentenceSpan, bool]]:
    """Split a sentence into parts to translate and parts to copy.

    To copy: list markers, quotes and brackets around a whole sentence, links, e-mail addresses,
    placeholders such as {name}, $t(key) and %s, tags, ">>xxx<<" codes, words outside the
    vocabulary, and marks outside the vocabulary at the edges of other words.

    Yields:
        (part, whether to copy it). The first part has the sentence's leading space.
    """
    text = span.text
    if not text:
        yield span, True
        return
    numbered = two_letter(language) not in _ORDINAL_DOT
    match = (_NUMBERED if numbered else _MARKER).match(text)
    start, stop = _strip_enclosing(text, match.end() if match else 0)
    kept = [(0, start), *_untranslatable(text, start, stop, has_unknown), (stop, len(text))]
    position, leading_space = 0, span.leading_space
    for first, last, keep in _alternate(text, kept):
        body = text[first:last]
        if body.strip():
            start = first + len(body) - len(body.lstrip())
            yield SentenceSpan(leading_space + text[position:start], body.strip()), keep
            position, leading_space = start + len(body.strip()), ""


def _strip_enclosing(text: str, start: int) -> tuple[int, int]:
    """(first, last + 1) of text[start:] without quotes and brackets around all of it."""
    stop = len(text)
    while stop - start > 2:
        first, last, inner = text[start], text[stop - 1], text[start + 1 : stop - 1]
        left, right = first in _DOUBLE, last in _DOUBLE
        if left or right:
            # A single one belongs to a quotation over several sentences.
            rest = text[start + left : stop - right]
            if any(mark in rest for mark in _DOUBLE):
                break
            start, stop = start + left, stop - right
        elif _PAIRS.get(first) == last:
            inner = _APOSTROPHE.sub("", inner)
            if first in inner or last in inner:
                break
            start, stop = start + 1, stop - 1
        else:
            break
    return start, stop


def _untranslatable(
    text: str, start: int, stop: int, has_unknown: Callable[[str], bool]
) -> Iterator[tuple[int, int]]:
    """The spans of links, and of words and marks outside the vocabulary."""
    for match in _LINK.finditer(text, start, stop):
        after = _AFTER_LINK.match(text, match.end(), stop)
        assert after is not None, "all of the pattern is optional"
        yield match.start(), after.end()
    rest = text[:start] + _LINK.sub(lambda match: " " * len(match[0]), text[start:stop])
    if not has_unknown(rest[start:]):
        return
    for match in _WORD.finditer(rest, start):
        word, (first, last) = match[0], match.span()
        if not has_unknown(word):
            continue
        left, right = _edge(word), len(word) - _edge(word[::-1])
        if left >= right or has_unknown(word[left:right]):
            yield first, last
            continue
        if has_unknown(word[:left]):
            yield first, first + left
        if has_unknown(word[right:]):
            yield first + right, last


def _edge(word: str) -> int:
    """The number of marks at the beginning of a word."""
    match = _EDGES.match(word)
    return match.end() if match else 0


def _alternate(text: str, kept: list[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """Spans that cover a text, each with whether it is kept.

    Kept spans with only white space between them are joined.
    """
    joined: list[list[int]] = []
    for first, last in sorted(kept):
        if first == last:
            continue
        if joined and not text[joined[-1][1] : first].strip():
            joined[-1][1] = last
        else:
            joined.append([first, last])
    position = 0
    for first, last in joined:
        yield position, first, False
        yield first, last, True
        position = last
    yield position, len(text), False
