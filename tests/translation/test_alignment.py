"""Word alignments: words equal in both languages are linked, and the spans are right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from edgeapp.batch.texts.line_formats import as_json, as_text, as_tsv
from pipelines.engine import Engine
from pipelines.errors import CheckpointError
from pipelines.translation import Alignment, SentenceTranslation, TranslateOptions, Translator
from pipelines.translation.alignment import join_alignments, words_of

ASKING = TranslateOptions(word_alignments=True)


def pairs(source: str, text: str, alignment: Alignment | None) -> set[tuple[str, str]]:
    assert alignment is not None
    return {
        (
            source[slice(*alignment.source_words[i])],
            text[slice(*alignment.target_words[j])],
        )
        for i, j in alignment.links
    }


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_identical_names_and_numbers_are_aligned(demo: Translator, beam_size: int) -> None:
    source = "Tom lives in Boston. He has 3 children.\nMary is here."
    options = replace(ASKING, beam_size=beam_size)
    found = demo.translate(source, options)
    linked = pairs(found.source, found.text, found.alignment)
    same = {"Tom", "Boston.", "3"}
    assert {(word, word) for word in same} <= linked
    for sentence in found.sentences:
        assert pairs(sentence.source, sentence.text, sentence.alignment) <= linked
    # Without the option there is no alignment; all else is equal.
    plain = demo.translate(source, replace(options, word_alignments=False))
    assert plain.alignment is None
    assert all(sentence.alignment is None for sentence in plain.sentences)
    assert (plain.text, plain.warnings) == (found.text, found.warnings)


@pytest.mark.slow
def test_every_text_of_any_kind(demo: Translator) -> None:
    """Nothing, spaces, marks, links, capitals, quotes, letters that the model does not know."""
    texts = [
        "",
        "   ",
        "- 42 -",
        "See http://example.org/a now.",
        "THE HOUSE IS OLD",
        "“Good morning”, said Tom.",
        "Zoë and Åsa are here…",
        "東京 is big.",
        "one two " * 80,
    ]
    for source, found in zip(texts, demo.translate(texts, ASKING), strict=True):
        alignment = found.alignment
        assert alignment is not None
        assert alignment.source_words == words_of(source)
        assert alignment.target_words == words_of(found.text)
        for i, j in alignment.links:
            assert i < len(alignment.source_words)
            assert j < len(alignment.target_words)
    assert demo.translate([texts[2]], ASKING)[0].alignment == Alignment(
        ((0, 1), (2, 4), (5, 6)), ((0, 1), (2, 4), (5, 6)), ((0, 0), (1, 1), (2, 2))
    )
    (link,) = demo.translate([texts[3]], ASKING)
    assert ("http://example.org/a",) * 2 in pairs(link.source, link.text, link.alignment)


def test_words() -> None:
    assert words_of(" one,  two\n") == ((1, 5), (7, 10))
    assert words_of("東京 is") == ((0, 1), (1, 2), (3, 5))
    assert words_of("ﾃｽﾄ 100㎏\u3000한국어") == ((0, 3), (4, 8), (9, 12))
    assert words_of("") == ()


def test_parts_of_a_word_are_the_word() -> None:
    """A quote that was set apart belongs to the word that it stands at."""
    mark = SentenceTranslation('"', '"', alignment=Alignment(((0, 1),), ((0, 1),), ((0, 0),)))
    body = SentenceTranslation(
        "Good day", "Tag", alignment=Alignment(((0, 4), (5, 8)), ((0, 3),), ((1, 0),))
    )
    whole = join_alignments('"Good day', '"Tag', [mark, body])
    assert whole == Alignment(((0, 5), (6, 9)), ((0, 4),), ((0, 0), (1, 0)))
    assert whole.pharaoh == "0-0 1-0"
    assert join_alignments("a", "b", [SentenceTranslation("a", "b")]) is None


def test_a_folder_names_its_heads(demo_folder: Path, tmp_path: Path, exact_engine: Engine) -> None:
    folder = copytree(demo_folder, tmp_path / "opus-mt-en-de")
    path = folder / "generation_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"alignment_heads": [[1, 2]]}))
    chosen = Translator(folder, engine=exact_engine)
    source = "Tom lives in Boston."
    found = chosen.translate(source, ASKING)
    assert {("Tom", "Tom"), ("Boston.", "Boston.")} <= pairs(source, found.text, found.alignment)
    path.write_text(json.dumps(config | {"alignment_heads": [[2, 0]]}))
    with pytest.raises(CheckpointError, match="alignment_heads"):
        Translator(folder, engine=exact_engine)


def test_lines(demo: Translator) -> None:
    """Text as marian-decoder writes it, columns, and objects; one line each."""
    found, empty = demo.translate(["Tom is here.\tHe\nis old.", ""], ASKING)
    assert found.alignment is not None
    assert as_text(found) == f"{found.text} ||| {found.alignment.pharaoh}".replace("\n", " ")
    assert as_text(empty) == " |||"
    source, text, links = as_tsv(found).split("\t")
    assert source == "Tom is here. He is old."
    assert text.split() == found.text.split()
    assert links == found.alignment.pharaoh
    assert as_tsv(empty) == "\t\t"
    content = json.loads(as_json(found))
    assert content["alignment"]["links"] == [list(link) for link in found.alignment.links]
    assert [word["text"] for word in content["alignment"]["source_words"]][:3] == [
        "Tom", "is", "here.",
    ]  # fmt: skip
    plain = demo.translate("Tom is here.")
    assert "|||" not in as_text(plain)
    assert as_tsv(plain) == f"Tom is here.\t{plain.text}"
    assert "alignment" not in json.loads(as_json(plain))
