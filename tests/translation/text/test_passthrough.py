"""Parts of a sentence that are copied: list markers, quotes, links, unknown words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.translation.text.passthrough import (
    plain_quotes,
    split_passthrough,
    without_added_stop,
)
from pipelines.translation.text.sentences import SentenceSpan
from tests.translation.corpus import ODD

UNREADABLE = set("@&*🍕<>\\=漢字ж")


def _unreadable(text: str) -> bool:
    return any(char in UNREADABLE for char in text)


def _parts(sentence: str, language: str = "en") -> str:
    """What is kept in curly braces."""
    return "".join(
        span.leading_space + (f"{{{span.text}}}" if keep else span.text)
        for span, keep in split_passthrough(SentenceSpan("", sentence), language, _unreadable)
    )


@pytest.mark.parametrize(
    "expected",
    [
        "{-} milk",
        "{•} Call the doctor.",
        "{1.} Open the door.",
        "{2)} Close the window.",
        "{a)} Wash your hands.",
        "{> >} Where are you?",
        "{# 3.} Results",
        "{- (a)} one of two",
        "-5 degrees",
        "3.50 is too much.",
        "1985. What a year!",
        "I. Newton was here.",
    ],
)
def test_marks_of_lists(expected: str) -> None:
    assert _parts(expected.replace("{", "").replace("}", "")) == expected


def test_in_german_a_number_with_a_dot_is_an_ordinal() -> None:
    assert _parts("5. Mai war ein Montag.", "de") == "5. Mai war ein Montag."
    assert _parts("5) Mai war ein Montag.", "deu") == "{5)} Mai war ein Montag."


@pytest.mark.parametrize(
    "expected",
    [
        "{(}He was not at home.{)}",
        '{"}Let\'s go home.{"}',
        "{“}Let's go home.{”}",
        "{'}I don't know.{'}",
        "{„(}Nobody knows.{)“}",
        '{- "}Come in!{"}',
        # A quotation of several sentences has been cut.
        "{“}I am tired.",
        "Let's go home.{”}",
        '"Stop!" he shouted.',
        'He said: "Stop!"',
        '"Yes," he said, "of course."',
        "(One) and (two)",
        "'Tis the season.",
        "The house is my parents'",
    ],
)
def test_quotes_and_brackets_around_a_sentence(expected: str) -> None:
    assert _parts(expected.replace("{", "").replace("}", "")) == expected


@pytest.mark.parametrize(
    "expected",
    [
        "I like pizza {🍕.}",
        "I like pizza{🍕}",
        "I like {漢字} and pizza.",
        "Write to {name@example.org,} please.",
        "See {https://www.example.com/?q=a&b=c#d}.",
        "{(www.example.com/a)}",
        "Tom {&} Mary",
        "{**}Important{:**} do not touch.",
        "{<b>}Hello{</b>} my friend",
        "{жук 漢字} is new",
        "{C:\\me\\file.txt}",
        "{>>fra<<} Yes.",
        f"The key is {{{'0123456789abcdef' * 4}}}.",
        "a_b stays, and so does AT+T",
    ],
)
def test_links_and_unknown_words_are_copied(expected: str) -> None:
    assert _parts(expected.replace("{", "").replace("}", "")) == expected


_TEXT = st.text(alphabet=st.sampled_from("ab1 .,!?-*()\"'“”@/:🍕漢>#\u00a0"))


@pytest.mark.slow
@settings(max_examples=400)
@given(st.one_of(_TEXT, st.text(), st.sampled_from(ODD)).map(str.strip), st.sampled_from(" \n"))
def test_no_character_is_lost(sentence: str, before: str) -> None:
    spans = [
        span for span, _ in split_passthrough(SentenceSpan(before, sentence), "en", _unreadable)
    ]
    assert "".join(span.leading_space + span.text for span in spans) == before + sentence
    assert all(span.text == span.text.strip() for span in spans)
    assert all(not span.leading_space.strip() for span in spans)
    assert all(span.text for span in spans) or not sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a.",
        "- ",
        "((",
        "[(",
        "www.",
        "a@",
        "a@b.",
        "'",
        '"',
        "_",
        "🍕a ",
        "http://a 漢 ",
        "{{",
        "$a(",
        "[[a",
        "{% ",
        ":a",
        "@:",
        "__a",
    ],
)
def test_long_lines_take_no_time(unit: str) -> None:
    start = time.process_time()
    parts = list(
        split_passthrough(SentenceSpan("", (unit * 100_000)[:100_000].strip()), "en", _unreadable)
    )
    assert parts
    assert time.process_time() - start < 5


def test_no_full_stop_where_there_was_none() -> None:
    assert without_added_stop("milk", "Milch.") == "Milch"
    assert without_added_stop("Milk.", "Milch.") == "Milch."
    assert without_added_stop("Really?", "Wirklich.") == "Wirklich."
    assert without_added_stop("wait", "warte...") == "warte..."
    assert without_added_stop("in the USA", "in den U.S.A.") == "in den U.S.A."
    assert without_added_stop("a", ".") == "."
    assert without_added_stop("a", "") == ""


def test_plain_quotes() -> None:
    assert plain_quotes("“It’s ‘fine’,” „so“") == '"It\'s \'fine\'," "so"'


@pytest.mark.parametrize(
    "expected",
    [
        "Hello «{name},» how are you?",
        "«%s» files of «%1$s» and «%-5.2f»",
        "«%(name)s» has «${count}» of «%{total}» and «{{ n }}, {0}»",
        '«<x/>» Click «<b>»here«</b>» or «<g id="1">»there«</g>»',
        "«{count, plural, one {# file} other {# files}}» left",
        "Hello!«\\n»My name is C:\\new. «\\t» One«\\n\\n»Two«\\n»",
        "Order «#42» and «#7:» C#1 is «&#x27;»",
        "Ask «a.b+c@example.co.uk» or see «ftp://example.org/a_b» and «example.com/x?y=1»",
    ],
)
def test_placeholders_tags_and_addresses_are_copied(expected: str) -> None:
    sentence = expected.replace("«", "").replace("»", "")
    parts = split_passthrough(SentenceSpan("", sentence), "en", lambda text: False)
    assert (
        "".join(
            span.leading_space + (f"«{span.text}»" if keep else span.text) for span, keep in parts
        )
        == expected
    )


_PLACEHOLDERS = (
    """
$t(key) $t(a:b,{"count":1}) $(HOME) $[x] $name $user->name $NAME$ {name!r} {t('k')} {0:.2f} {0}%
:name :smile: @:a.b @.lower:a @:(a) @:{'a'} @name %<count>d %[1]d %L2 %name% %% %#@files@ %q
{{a|b}} {{#if}} {{/if}} {{{raw}}} {%if%} <%=y%> <?php?> [[name]] ##name## @@name@@ __user_name__
__NAME__ @user@mastodon.social @angular/core
&nbsp; &#39; {0,number} %{n,number} {$n->[one]*[other]}
""".split()
    + ["$t(key, { count: 1 })", "{{ a | b }}", "{% if x %}", "{ $n -> [one] a *[other] b }"]
)


@pytest.mark.parametrize("placeholder", _PLACEHOLDERS)
def test_placeholders_of_many_formats_are_copied(placeholder: str) -> None:
    for sentence in (f"I like {placeholder} today.", f"Where is {placeholder}?"):
        parts = split_passthrough(SentenceSpan("", sentence), "en", lambda text: False)
        assert placeholder in [span.text for span, keep in parts if keep]


@pytest.mark.parametrize(
    "text",
    [
        "I am 100% sure.",
        "50% discount",
        "{I like bread}",
        "a < b and c > d",
        "e.g. no",
        "It costs $5 or $1,000.",
        "100%ig und 50 %ige Waren, %20 und %1,5",
        "Ten of [them] : two (a) at 12:30 or 5:a, R&D; a_b_c",
        "He said: yes @ home # two",
        "an der 5%-Hürde, 3%-Lösung, 50%-a, 20%-ról, 10%-nál, 5%-t, 10%-l, 10%ní, 100%-Förderung",
        "5%p 상승했다",
        "Hinta nousi 10 %:lla ja 5 %:n korotus",
        'Klaus (Berlin):Ich komme, [10:30]:Hallo, "Name":Open, Note(s):keep :D :P',
        "Enflasyon %5 arttı, %5'i ve %9'u.",
        "This is __very__ important, Q&As; Johnson&Johnson;",
    ],
)
def test_marks_that_are_no_placeholders_are_translated(text: str) -> None:
    parts = list(split_passthrough(SentenceSpan("", text), "en", lambda text: False))
    assert parts == [(SentenceSpan("", text), False)]
