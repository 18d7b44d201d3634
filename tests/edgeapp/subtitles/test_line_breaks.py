"""Lines break where their script allows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeapp.subtitles import unspaced_words
from edgeapp.subtitles.line_breaks import display_width, lay_out, words_to_break

_LIBRARIES = ("pythainlp.tokenize", "laonlp.tokenize", "khmercut")


@pytest.fixture
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Libraries of words that are not installed."""
    _forget_words()
    for module in _LIBRARIES:
        monkeypatch.setitem(sys.modules, module, None)
    yield
    _forget_words()


def _forget_words() -> None:
    unspaced_words._starts.cache_clear()
    unspaced_words._divider.cache_clear()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("今日は「とても」いい。（はい）", "今|日|は|「と|て|も」|い|い。|（は|い）"),
        ("キャンディーを買った！", "キャ|ン|ディー|を|買っ|た！"),
        ("他说：“你好”，然后", "他|说：|“你|好”，|然|后"),
        ("100%の人", "100%|の|人"),
        ("がか\u3099", "が|か\u3099"),
        ("เราไปเที่ยวทะเล", "เรา|ไป|เที่|ย|ว|ทะ|เล"),
        ("ສະບາຍດີ", "ສະ|ບາ|ຍ|ດີ"),
        ("ខ្ញុំចង់ទៅផ្សារ", "ខ្ញុំ|ច|ង់|ទៅ|ផ្សា|រ"),
        ("မြန်မာနိုင်ငံသည်", "မြန်|မာ|နိုင်|ငံ|သည်"),
        ("ကျွန်တော်တို့၏အင်္ဂလိပ်စာ၊ တက္ကသိုလ်။", "ကျွန်|တော်|တို့၏|အင်္ဂ|လိပ်|စာ၊| တက္က|သိုလ်။"),
        ("ခွင့်ပြုချက်ကို ၁,၅၀၀ (ကျပ်)ပေးပါ", "ခွင့်|ပြု|ချက်|ကို| ၁,၅၀၀| (ကျပ်)|ပေး|ပါ"),
        ("မိူင်းတႆး", "မိူင်း|တႆး"),  # Shan
        ("བོད་སྐད་ཡིན། ང་", "བོད་|སྐད་|ཡིན།| ང་"),
        ("“Quote” (yes) #tag", "“Quote”| (yes)| #tag"),
        ("葛\U000e0100城あ\u20ddか", "葛\U000e0100|城|あ\u20dd|か"),
        ("ｶﾞｯｷﾞｰ､ｱ", "ｶﾞｯ|ｷﾞｰ､|ｱ"),
        ("今日は(はい)です", "今|日|は|(は|い)|で|す"),
        ("see f(x), [a]", "see| f(x),| [a]"),
    ],
)
@pytest.mark.usefixtures("no_libraries")
def test_lines_break_where_a_script_allows_it(text: str, parts: str) -> None:
    assert words_to_break(text) == parts.split("|")


@pytest.mark.parametrize(
    "sentence",
    [
        "เราไปเที่ยวทะเลกันเถอะ",
        "ເຮົາໄປຕະຫຼາດ",
        "ខ្ញុំចង់ទៅផ្សារនៅថ្ងៃនេះ",
        "ကျွန်တော်တို့ဈေးသို့သွားချင်ပါတယ်",
        "ང་ཚོ་ཁྲོམ་ལ་འགྲོ་འདོད་ཡོད",
    ],
)
def test_lines_of_scripts_without_spaces_are_no_longer_than_others(sentence: str) -> None:
    laid_out = lay_out(words_to_break(sentence * 4), 42, 2)
    assert laid_out.replace("\n", "") == sentence * 4
    assert all(display_width(line) <= 42 for line in laid_out.split("\n"))


@given(
    st.text(
        alphabet="a e\u0301日本「」。กำเ\u0e34ខ្\u17d2ညကမ\u1039\u103a\u1031"
        "\U0001f469\u200d\U0001f467\ufe0f",
        max_size=40,
    )
)
def test_no_character_is_lost_and_no_cluster_is_cut(text: str) -> None:
    parts = words_to_break(text)
    assert "".join(parts) == text.rstrip()
    for part in parts[1:]:
        assert part[0] not in "\u0301\u0e34\u17d2\u1039\u103a\u1031\u200d\ufe0f。」", parts


@pytest.mark.parametrize(
    ("library", "text", "words"),
    [
        ("pythainlp", "เราไปเที่ยวทะเล (กันเถอะ)", "เรา|ไปเที่ยว|ทะเล| (กัน|เถอะ)"),
        ("pythainlp", "ไปกรุงเทพฯ บ่อยๆ", "ไป|กรุงเทพฯ| บ่อยๆ"),
        ("pythainlp", "ข" * 45, f"{'ข' * 20}|{'ข' * 20}|{'ข' * 5}"),
        ("laonlp", "ເຮົາໄປຕະຫຼາດ", "ເຮົາ|ໄປ|ຕະຫຼາດ"),
        ("khmercut", "ខ្ញុំចង់ទៅផ្សារនៅថ្ងៃនេះ។", "ខ្ញុំ|ចង់|ទៅ|ផ្សារ|នៅ|ថ្ងៃ|នេះ។"),
    ],
)
def test_lines_break_between_words_of_scripts_without_spaces(
    library: str, text: str, words: str
) -> None:
    pytest.importorskip(library, reason="of the extra 'scripts'")
    assert words_to_break(text) == words.split("|")


def test_the_library_of_thai_words_makes_no_folder_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pythainlp", reason="of the extra 'scripts'")
    import subprocess

    program = (
        "from edgeapp.subtitles.line_breaks import words_to_break as f; print(len(f('เราไป')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", [ValueError, ImportError])
def test_a_broken_library_of_words_costs_no_subtitle(
    failure: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise failure(name)

    _forget_words()
    for module in _LIBRARIES:
        monkeypatch.setitem(sys.modules, module, Broken())
    assert words_to_break("เราไป") == ["เรา", "ไป"]
    _forget_words()


def test_a_line_of_brackets_takes_linear_time() -> None:
    assert len(words_to_break("a" + "(" * 50_000)) == 1
