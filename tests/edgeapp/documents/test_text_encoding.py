"""The encoding of files: told by marks, declarations and bytes; never a lost character."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeapp.documents.text_encoding import EncodingHint, decode_text, text_of_head
from pipelines import InputError

_TEXT = "Die Tür ist grün – „ja“.\nIch mag Brot für 5 €.\n"


@pytest.mark.parametrize(
    "codec", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_a_text_is_read_in_any_of_its_encodings(codec: str) -> None:
    text, encoding = decode_text(_TEXT.encode(codec), "t.txt")
    assert text == _TEXT
    assert encoding.encode(text) == _TEXT.encode(codec)


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        ('<meta charset="ISO-8859-1">', "cp1252"),
        ("<META http-equiv=Content-Type content='text/html; charset=windows-1251'>", "cp1251"),
        ('<?xml version="1.0" encoding="ISO-8859-2"?>', "iso8859-2"),
        ("<!-- <meta charset=utf-8> --><meta charset = Shift_JIS >", "cp932"),
        ("<meta charset=gb2312>", "gb18030"),
        ("<meta charset=windows-874>", "cp874"),
        ("<meta charset=iso-8859-8-i>", "iso8859-8"),
        ("<meta charset=utf-16>", "utf-8"),
    ],
)
def test_markup_declares_its_encoding(head: str, codec: str) -> None:
    words = {
        "cp1251": "Привет",
        "cp932": "日本",
        "gb18030": "中文",
        "cp874": "ไทย",
        "iso8859-8": "שלום",
    }.get(codec, "Köln")
    text, encoding = decode_text(f"{head}<p>{words}".encode(codec), "t.html", markup=True)
    assert (text, encoding.codec) == (f"{head}<p>{words}", codec)
    assert encoding.encode("„ж€“").decode("ascii", "replace").count("&#") >= (codec == "iso8859-2")


@pytest.mark.parametrize("label", ["klingon", "hex", "rot13", "undefined", "unicode_escape"])
def test_an_unknown_declaration_is_named(label: str) -> None:
    with pytest.raises(InputError, match=rf"t\.html declares the encoding {label}, "):
        decode_text(f"<meta charset={label}>\\x41".encode(), "t.html", markup=True)


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (_TEXT.encode() + b"ok\nK\xf6ln\n", 4),  # UTF-8, but for one line
        (b"K\xf6ln\nb\x81\n", 2),  # undefined in Windows-1252
        (b"\xff\xfe" + "ab\nc\n".encode("utf-16-le") + b"\x00\xd8a\0", 3),
        (b"\xef\xbb\xbfab\nK\xf6ln\n", 2),
        (b"x" * (1 << 20) + b"\n" + b"\xc3\xa9\n" * 9 + b"\xff\n", 11),
    ],
)
def test_what_cannot_be_decoded_is_an_error_with_its_line(content: bytes, number: int) -> None:
    with pytest.raises(InputError, match=rf"^t\.txt, line {number}: some bytes are not "):
        decode_text(content, "t.txt")


_RUSSIAN = (
    "Дети приходят каждую неделю в школу и читают книги. Вчера мы ездили в Москву, чтобы увидеть "
    "нашу бабушку. Она живёт одна в большом доме.\n"
)
_CZECH = (
    "Děti chodí každý týden do školy a čtou knihy. Včera jsme jeli do Prahy, abychom viděli naši "
    "babičku. Žije sama ve velkém domě.\n"
)
_CHINESE = "孩子们每周都去学校读书。昨天我们去北京看望我们的奶奶。她一个人住在一所大房子里。\n"
_TRADITIONAL = "孩子們每週都去學校讀書。昨天我們去北京看望我們的奶奶。她一個人住在一所大房子裡。\n"
_JAPANESE = "子供たちは毎週学校に行って本を読みます。昨日、祖母に会いに東京へ行きました。\n"
_THAI = "เด็กๆ ไปโรงเรียนทุกสัปดาห์และอ่านหนังสือ เมื่อวานเราไปเชียงใหม่เพื่อเยี่ยมคุณยาย\n"
_MALAYALAM = "കുട്ടികൾ എല്ലാ ആഴ്ചയും സ്കൂളിൽ പോയി പുസ്തകങ്ങൾ വായിക്കുന്നു. ഇന്നലെ ഞങ്ങൾ മുത്തശ്ശിയെ കണ്ടു.\n"
_UKRAINIAN = (
    "Учора ми ходили до театру й дивилися дуже цікаву виставу. Моя сестра живе в Києві та працює у "
    "великій бібліотеці.\n"
)
_LEGACY = [
    ("cp1251", _RUSSIAN),
    ("koi8-r", _RUSSIAN),
    ("cp866", _RUSSIAN),
    ("iso8859-5", _RUSSIAN),
    ("cp1250", _CZECH),
    ("iso8859-2", _CZECH),
    *(
        (f"utf-16-{order}", text)
        for order in ("le", "be")
        for text in (_RUSSIAN, _THAI, _MALAYALAM)
    ),
    ("cp1125", _UKRAINIAN),
    (
        "cp862",
        "אתמול הלכנו לתיאטרון וראינו הצגה מעניינת מאוד. אחותי גרה בירושלים ועובדת בספרייה.\n",
    ),
    ("iso8859-15", "L'été dernier, ma sœur était très fatiguée, mais heureuse d'être là.\n"),
    ("cp1253", "Τα παιδιά πηγαίνουν κάθε εβδομάδα στο σχολείο και διαβάζουν βιβλία.\n"),
    ("cp1254", "Çocuklar her hafta okula gidiyor ve kitap okuyor. Yarın hava güzel olacak.\n"),
    ("cp1256", "يذهب الأطفال إلى المدرسة كل أسبوع ويقرؤون الكتب. ذهبنا أمس إلى القاهرة.\n"),
    ("cp1257", "Vaikai kiekvieną savaitę eina į mokyklą ir skaito knygas, važiavome į Šiaulius.\n"),
    ("cp874", _THAI),
    ("cp932", _JAPANESE),
    ("euc_jp", _JAPANESE),
    ("iso2022_jp", _JAPANESE),
    ("gb18030", _CHINESE),
    ("big5", _TRADITIONAL),
    ("euc_kr", "아이들은 매주 학교에 가서 책을 읽습니다. 어제 우리는 서울에 갔습니다.\n"),
]


@pytest.mark.parametrize(("codec", "text"), _LEGACY)
def test_an_older_encoding_is_told_by_its_letters(codec: str, text: str) -> None:
    assert decode_text(text.encode(codec), "t.txt")[0] == text
    page = f"<html><body class=page><p>{text}</body></html>"
    assert decode_text(page.encode(codec), "t.html", markup=True)[0] == page


@pytest.mark.parametrize(
    ("codec", "text", "language"),
    [
        ("koi8-r", "Привет!\n", "ru"),
        ("cp1251", "Привет!\n", "ru"),
        ("shift_jis", "日本\n", "ja"),
        ("cp1255", "שלום, מה שלומך?\n", "he"),
        ("big5", "你好\n", "zh"),
        ("iso8859-2", "Wróćmy!\n", "pl"),
        ("cp1254", "Teşekkür!\n", "tr"),
        ("cp1252", "Grüße!\n", "de"),
    ],
)
def test_the_language_decides_where_a_text_is_too_short(
    codec: str, text: str, language: str
) -> None:
    hint = EncodingHint(language=language)
    assert decode_text(text.encode(codec), "t.txt", hint=hint)[0] == text


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("Привет!\n".encode("koi8-r"), EncodingHint()),  # could be Greek as well
        ("日本\n".encode("shift_jis"), EncodingHint(language="en")),
        ("Die Tür ist schön.\n".encode("mac_roman"), EncodingHint(language="de")),
        ("Die Tür ist schön.\n".encode("cp850"), EncodingHint(language="de")),
    ],
)
def test_what_cannot_be_told_is_an_error_that_names_the_option_of_the_command_line(
    content: bytes, hint: EncodingHint
) -> None:
    message = r"^t\.txt, line 2: some bytes are not .* text; "
    option = r"name the encoding \(--encoding windows-1251\), or "
    with pytest.raises(InputError, match=f"{message}convert the file to UTF-8$"):
        decode_text(b"fine\n" + content, "t.txt", hint=hint)
    on_command_line = replace(hint, has_option=True)
    with pytest.raises(InputError, match=f"{message}{option}convert the file to UTF-8$"):
        decode_text(b"fine\n" + content, "t.txt", hint=on_command_line)


@pytest.mark.parametrize(
    ("codec", "text", "language"),
    [
        ("cp1254", "Nasılsın?", "tr"),
        ("cp1250", "Mulţumesc!", "ro"),
        ("cp1257", "Šiandien šalta.", "lt"),
        ("cp1257", "Aš mėgstu duoną.", "lt"),
    ],
)
def test_letters_of_icelandic_do_not_make_another_text_western(
    codec: str, text: str, language: str
) -> None:
    with pytest.raises(InputError, match=r"^t\.txt, line 1: some bytes are not UTF-8 text"):
        decode_text(text.encode(codec), "t.txt")
    hint = EncodingHint(language=language)
    assert decode_text(text.encode(codec), "t.txt", hint=hint)[0] == text


@pytest.mark.parametrize("language", [None, "de"])
def test_a_name_with_a_letter_of_icelandic_does_not_refuse_a_text(language: str | None) -> None:
    text = "Herr Novotný grüßt schöne Gäste, für die er Brötchen und Käse übrig hat."
    hint = EncodingHint(language=language)
    assert decode_text(text.encode("cp1252"), "t.txt", hint=hint)[0] == text


@pytest.mark.parametrize("text", ["Góðan daginn.", "Hvað er það?", "Takk fyri, tað er gott."])
def test_icelandic_and_faroese_are_western(text: str) -> None:
    assert decode_text(text.encode("cp1252"), "t.txt")[0] == text


@given(st.text(), st.integers(0, 40))
def test_the_beginning_of_a_text_may_end_within_a_character(text: str, size: int) -> None:
    head = text.encode("utf-8", "ignore")[:size]
    if b"\0" not in head:
        assert text.startswith(text_of_head(head)) or head.startswith(b"\xef\xbb\xbf")
