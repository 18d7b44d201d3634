"""Sentence splitting: no character is lost, lines are kept, cuts are at good places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.translation.text.sentences import SentenceSpan, split_sentences, split_to_fit
from tests.translation.corpus import ODD

SPLITS = {
    "Dr. Smith met Mr. Jones at 5 p.m. They talked.": 2,
    "We used e.g. salt, i.e. sodium chloride. It worked.": 2,
    "He lives in the U.S. It is big.": 2,
    "It costs $3.50. Cheap!": 2,
    "J. K. Rowling wrote it. No. 5 is alive.": 2,
    'He said: "Stop! Don\'t go." Then he left.': 2,
    "“Hello.” She waved.": 2,
    "Wait... what? Yes!! Really?!": 3,
    "One... Two... Three.": 3,
    "ASP.NET and System.Out are names. So is Booking.com. Yes.": 3,
    "1. Open the door. 2. Close it.": 2,
    "First line\nSecond line": 2,
    "Name\tAge\tTown": 3,
    "One.  Two.\u00a0Three.": 3,
    "He had a Ph.D. in physics.": 1,
    "No mark at the end": 1,
}


@pytest.mark.parametrize("text", SPLITS)
def test_where_english_sentences_end(text: str) -> None:
    assert len(split_sentences(text, "en")) == SPLITS[text]


def test_each_language_has_its_rules() -> None:
    german = "Am 5. Januar kam er. Das ist z.B. gut."
    assert len(split_sentences(german, "de")) == len(split_sentences(german, "deu")) == 2
    assert len(split_sentences("Привет. Как дела, т.е. хорошо?", "rus")) == 2
    assert len(split_sentences("你好。我很好！真的？", "cmn_Hans")) == 3
    assert len(split_sentences("Bonjour. Ça va?", "no such language")) == 2
    assert len(split_sentences("Hello. Hi.", None)) == 2


def test_lines_and_indentation_are_kept_apart_from_the_sentences() -> None:
    assert split_sentences("  One.\r\n\r\n\tTwo. Three.  \n", "en") == [
        SentenceSpan("  ", "One."),
        SentenceSpan("\r\n\r\n\t", "Two."),
        SentenceSpan(" ", "Three."),
        SentenceSpan("  \n", ""),
    ]
    assert split_sentences("", "en") == []
    assert split_sentences(" \n ", "en") == [SentenceSpan(" \n ", "")]
    assert split_sentences("A. B.\nC.", "en", lines_only=True) == [
        SentenceSpan("", "A. B."),
        SentenceSpan("\n", "C."),
    ]


_TEXT = st.text(alphabet=st.sampled_from("aBé1 .!?…\"'()“”«»\n\r\t\u00a0\u2028。，中,;:-–\ud800🙂"))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.one_of(_TEXT, st.text(), st.sampled_from(ODD)), st.sampled_from(["en", "de", "zh", "xx"]))
def test_no_character_is_lost(text: str, language: str) -> None:
    spans = split_sentences(text, language)
    assert "".join(span.leading_space + span.text for span in spans) == text
    for index, span in enumerate(spans):
        assert span.text == span.text.strip()
        assert not span.leading_space.strip()
        assert span.text or index == len(spans) - 1
        assert "\n" not in span.text


@pytest.mark.slow
@settings(max_examples=200)
@given(st.text(min_size=1).map(str.strip).filter(bool), st.integers(2, 20))
def test_a_shortened_sentence_is_still_all_there(sentence: str, limit: int) -> None:
    spans = split_to_fit(sentence, limit, len)
    assert "".join(span.leading_space + span.text for span in spans) == sentence
    assert all(span.text and span.text == span.text.strip() for span in spans)


def test_parts_fit() -> None:
    for sentence in ("word " * 1000 + "end", "a" * 5000, "a,b;" * 700, "我很好，" * 300):
        spans = split_to_fit(sentence, 50, len)
        assert all(len(span.text) <= 50 for span in spans)
        assert "".join(span.leading_space + span.text for span in spans) == sentence


def test_a_sentence_that_fits_is_left_alone() -> None:
    assert split_to_fit("One, two; three.", 16, len) == [SentenceSpan("", "One, two; three.")]


def test_it_is_cut_at_the_best_place_near_the_middle() -> None:
    def parts(sentence: str) -> list[str]:
        return [span.text for span in split_to_fit(sentence, len(sentence) - 1, len)]

    assert parts("I came, I saw it; I conquered, and left.") == [
        "I came, I saw it;",
        "I conquered, and left.",
    ]
    assert parts("When it rained in the city, we stayed at home") == [
        "When it rained in the city,",
        "we stayed at home",
    ]
    assert parts("some words without any marks") == ["some words", "without any marks"]
    assert parts("我今天很好，你今天也好") == ["我今天很好，", "你今天也好"]


def test_a_character_of_several_code_points_stays_whole() -> None:
    family = "👩\u200d👩\u200d👧"
    spans = split_to_fit(family * 20, 12, len)
    assert "".join(span.text for span in spans) == family * 20
    for span in spans:
        assert span.text.count("👧") * len(family) == len(span.text)
    assert all(span.text[0] != "\u0301" for span in split_to_fit("e\u0301" * 50, 7, len))


@pytest.mark.parametrize("mark", ["\u0301", "\u200d", "\ufe0f"])
def test_a_long_row_of_marks_is_cut_in_few_steps(mark: str) -> None:
    """It is no character, which would be kept whole."""
    measured = 0

    def measure(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return len(text)

    text = mark * 20_000
    spans = split_to_fit(text, 100, measure)
    assert "".join(span.leading_space + span.text for span in spans) == text
    assert measured <= 20 * len(text)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("fr", "Je parle à M. Dupont demain."),
        ("fr", "Mme. Curie et le Dr. Martin sont là."),
        ("fr", "Il est né en 50 av. J.-C. à Rome."),
        ("fr", "L'affaire de Me. Durand."),
        ("es", "Vi a D. Juan ayer."),
        ("es", "Dña. María vive aquí."),
        ("it", "La chiesa di S. Pietro è grande."),
        ("it", "L'On. Moro parlò."),
        ("pt", "A D. Maria saiu."),
        ("pt", "V. Exa. está aqui."),
        ("nl", "Ik sprak mevr. De Vries gisteren."),
        ("pl", "Spotkałem p. Kowalskiego i ks. Jana."),
        ("ro", "Dl. Popescu și Sf. Ioan."),
        ("hu", "Dr. Kovács és Szt. István."),
        ("ru", "Св. Николай и А. С. Пушкин."),
        ("tr", "Dr. Yılmaz ve Sn. Demir."),
        ("el", "Ο Αγ. Νικόλαος."),
        ("fi", "Hra. Virtanen ja P. Korhonen."),
        ("hr", "Sv. Ivan i g. Horvat."),
        ("de", "Hr. Müller und J. S. Bach."),
        ("en", "J. K. Rowling met Mr. T. Jones."),
        ("af", "Ek sien mnr. Botha en ds. Smit."),
        ("ar", "جاء د. أحمد اليوم."),
        ("az", "Dünən akad. Əliyev gəldi."),
        ("be", "Учора прыйшоў праф. Іваноў."),
        ("bn", "ডা. রহমান আজ এলেন।"),
        ("ga", "Tháinig an tUas. Ó Briain."),
        ("he", "אתמול פרופ. כהן הגיע."),
        ("hi", "आज डॉ. शर्मा आए।"),
        ("id", "Kemarin Bpk. Budi datang."),
        ("lt", "Vakar kun. Jonas atėjo."),
        ("lv", "Redzēju kgz. Ozolu."),
        ("mk", "Вчера дојде проф. Петров."),
        ("sw", "Jana Dkt. Juma alikuja."),
        ("ta", "நேற்று திரு. குமார் வந்தார்."),
        ("vi", "Hôm qua TS. Nam đã đến."),
    ],
)
def test_a_title_or_an_initial_stays_with_the_name(language: str, text: str) -> None:
    assert [span.text for span in split_sentences(text, language)] == [text]
    two = f"{text} {text}"
    assert [span.text for span in split_sentences(two, language)] == [text, text]


@pytest.mark.parametrize(
    ("language", "first"),
    [
        ("fr", "Prends de la vitamine C."),
        ("es", "Es el plan B."),
        ("pt", "Tem 5 m."),
        ("it", "Che cosa fanno."),
        ("fr", "Donne-le-moi."),
        ("fr", "C'est tout ce qu'il y a."),
        ("pt", "Ele sabe quem é."),
        ("it", "Non so chi è."),
        ("hu", "Ez ő."),
        ("uk", "Хто це є."),
        ("sv", "Det är en ö."),
        ("sv", "Hon är min fru."),
    ],
)
def test_a_sentence_may_end_with_a_short_word(language: str, first: str) -> None:
    texts = [span.text for span in split_sentences(f"{first} Roma.", language)]
    assert texts == [first, "Roma."]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("ko", ["안 돼.", "하지 마.", "빨리 와.", "늦었어."]),
        ("hi", ["वह आ.", "तुम जा."]),
        ("en", ["I got an A.", "She got a B.", "We go to gate C.", "It was I.", "We wait."]),
    ],
)
def test_a_word_of_one_letter_is_no_initial(language: str, sentences: list[str]) -> None:
    spans = split_sentences(" ".join(sentences), language)
    assert [span.text for span in spans] == sentences
