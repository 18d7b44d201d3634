"""LibreTranslate's interface, and its Python client."""

from __future__ import annotations

import io
import json
import socket
import tempfile
import time
import urllib.error
from collections.abc import Callable
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.api.libretranslate import detected_language
from edgeapp.server.api.text_translation import translatable_pairs
from edgeapp.server.api.uploads import FormUploads
from edgeapp.server.page.picker_options import PickerOptions, TranslatorOption
from pipelines.text_language import TextLanguage
from tests.edgeapp.server.api.conftest import Api

pytestmark = pytest.mark.slow
QUESTION = {"q": "Where is the station?", "source": "en", "target": "de"}


def test_json_form_and_list(api: Api) -> None:
    answer = api.post("translate", json=QUESTION)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"translatedText"}
    text = answer.json()["translatedText"]
    assert "Bahnhof" in text
    assert api.post("translate", data=QUESTION).json()["translatedText"] == text
    many = {**QUESTION, "q": [QUESTION["q"], "", "Good morning."]}
    texts = api.post("translate", json=many).json()["translatedText"]
    assert texts[:2] == [text, ""]
    assert len(texts) == 3


def test_the_language_is_detected(api: Api) -> None:
    english = "I would like to know where the nearest station is, please."
    answer = api.post("translate", json={"q": english, "source": "auto", "target": "de"}).json()
    assert answer["detectedLanguage"]["language"] == "en"
    assert 0 < answer["detectedLanguage"]["confidence"] <= 100
    german = "Ich möchte gerne wissen, wo der nächste Bahnhof ist."
    mixed = {"q": [english, german], "source": "auto", "target": "de"}
    answer = api.post("translate", json=mixed).json()
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "de"]
    assert answer["translatedText"][1] == german, "it is in the target language already"
    (first, *_) = api.post("detect", data={"q": german}).json()
    assert first["language"] == "de"
    assert set(first) == {"confidence", "language"}


@pytest.mark.parametrize("text", ["Hello", "OK", "12345", "", "♪", "…", "👍"])
def test_a_text_that_tells_no_language_gets_an_answer(api: Api, text: str) -> None:
    sentence = "Guten Morgen, wie geht es dir heute?"
    for target in ("de", "en"):
        one = api.post("translate", json={"q": text, "source": "auto", "target": target})
        assert one.status_code == 200, one.text
        assert one.json()["detectedLanguage"]["language"] in ("de", "en")
        listed = {"q": [sentence, text], "source": "auto", "target": target}
        many = api.post("translate", json=listed)
        assert many.status_code == 200, many.text
        first, second = many.json()["detectedLanguage"]
        assert first["language"] == "de"
        assert second == one.json()["detectedLanguage"]
        if not any(map(str.isalpha, text)):
            assert second == {"confidence": 0, "language": "en"}
            assert many.json()["translatedText"][1] == text


def test_only_installed_languages_are_guessed(api: Api) -> None:
    french = {"q": "Bonjour tout le monde", "source": "auto", "target": "de"}
    answer = api.post("translate", json=french)
    assert answer.status_code == 200
    assert answer.json()["detectedLanguage"]["language"] in ("en", "de")


def test_without_english_the_default_is_the_first_language_that_reaches_the_target() -> None:
    pairs = {"it": {"de"}, "es": {"de"}, "fr": {"it"}}
    assert detected_language("", False, pairs, "de") == TextLanguage("es", 0.0)
    assert detected_language("<b>!</b>", True, pairs, "it") == TextLanguage("fr", 0.0)
    sure = detected_language("Bonjour tout le monde", False, pairs, "de", among_all=True)
    assert sure.code == "fr"


def test_alternatives(api: Api) -> None:
    answer = api.post("translate", json={**QUESTION, "alternatives": 3}).json()
    assert answer["translatedText"] not in answer["alternatives"]
    assert len(set(answer["alternatives"])) == len(answer["alternatives"]) <= 3


def test_html_keeps_its_tags(api: Api) -> None:
    html = '<p>Where is the <a href="/s?a=1&amp;b=2">station</a>?</p><script>if (a<b) c()</script>'
    answer = api.post("translate", json={**QUESTION, "q": html, "format": "html"}).json()
    text = answer["translatedText"]
    assert '<a href="/s?a=1&amp;b=2">Bahnhof</a>?</p>' in text
    assert text.endswith("<script>if (a<b) c()</script>")


def test_fields_in_the_query(api: Api) -> None:
    """As deep_translator and Android apps send them."""
    text = api.post("translate", json=QUESTION).json()["translatedText"]
    assert "Bahnhof" in text
    answers = (
        api.post("translate", params=QUESTION),
        api.post("translate", params=QUESTION, headers={"content-type": "application/json"},
                 content=b"{}"),
        api.post("translate", params=QUESTION, data={"q": "No.", "source": "xx", "target": "xx"}),
        api.post("translate", params={"source": "en"}, data={**QUESTION, "source": "xx"}),
        api.post("translate", params={"q": "No.", "source": "xx"}, json=QUESTION),
    )  # fmt: skip
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"translatedText": text}
    many = api.post("translate", params={**QUESTION, "q": ["Good morning.", QUESTION["q"]]}).json()
    assert many["translatedText"][1] == text
    german = {"q": "Ich möchte gerne wissen, wo der nächste Bahnhof ist."}
    assert api.post("detect", params=german).json()[0]["language"] == "de"
    file = {"file": ("a.txt", b"Where is the station?")}
    done = api.post("translate_file", params={"source": "en", "target": "de"}, files=file)
    assert "Bahnhof" in httpx.get(done.json()["translatedFileUrl"]).text


def test_a_request_without_a_body_lacks_its_text(api: Api) -> None:
    parts = urlsplit(api.url)
    for path in ("/translate", "/detect"):
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.putrequest("POST", path)
        connection.endheaders()  # no Content-Length either
        answer = connection.getresponse()
        assert (answer.status, b"missing q" in answer.read()) == (400, True)
        connection.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"q": None}, "missing q"), ({"q": [1]}, "missing q"), ({"source": ""}, "missing source"),
        ({"target": None}, "missing target"), ({"target": "xx"}, "xx is not supported"),
        ({"source": "de", "target": "fr"}, "fr is not supported"),
        ({"format": "pdf"}, "pdf format"), ({"alternatives": "many"}, "alternatives"),
        ({"q": "x" * 200_001}, "exceeds text limit"), ({"q": ["x"] * 257}, "exceeds batch limit"),
    ],
)  # fmt: skip
def test_errors(api: Api, change: dict[str, Any], reason: str) -> None:
    answer = api.post("translate", json={**QUESTION, **change})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert reason in answer.json()["error"]


def test_invalid_bodies(api: Api) -> None:
    headers = {"content-type": "application/json"}
    for body in (b"{", b"[]", b"[" * 100_000):
        answer = api.post("translate", content=body, headers=headers)
        assert answer.status_code == 400
    assert api.post("translate", content=bytes(3 << 20), headers=headers).status_code == 413


def test_languages_and_settings(api: Api) -> None:
    languages = {each["code"]: each for each in api.get("languages").json()}
    assert languages["en"]["name"] == "English"
    assert "de" in languages["en"]["targets"]
    settings = api.get("frontend/settings").json()
    assert settings["keyRequired"] is False
    assert ".srt" in settings["supportedFilesFormat"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "Good morning.\n\nWhere is the station?\n", "Bahnhof"),
        ("a.html", "<h1>Where is the station?</h1>", "<h1>"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nWhere is the station?\n\n", "00:00:01,000"),
    ],
)
def test_files(api: Api, name: str, content: str, expected: str) -> None:
    def post(file: str) -> httpx.Response:
        form = {"source": "en", "target": "de"}
        return api.post("translate_file", files={"file": (file, content.encode())}, data=form)

    answer = post(name)
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(api.url)
    assert url.endswith(f"a_de.{name.rpartition('.')[2]}")
    done = httpx.get(url)
    assert expected in done.text
    assert done.headers["content-disposition"].startswith("attachment")
    assert httpx.get(url[:-8] + "x").status_code == 404
    assert post("a.pdf").status_code == 400


@pytest.mark.parametrize(
    "name",
    ["a b.txt", "a?b#c.txt", "100%.txt", "%2e%2e.txt", "Wörter.txt", "日本.txt", "a;b&c=d.txt",
     "x" * 190 + ".txt", "..txt", "tab\there.txt"],
)  # fmt: skip
def test_the_address_of_a_translated_file_can_be_fetched(api: Api, name: str) -> None:
    form = {"source": "de", "target": "de"}
    answer = api.post("translate_file", files={"file": (name, b"Gut.")}, data=form)
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.isascii()
    assert " " not in url
    done = httpx.get(url)
    assert (done.status_code, done.content) == (200, b"Gut.")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.srt", b"no cue"), ("a.srt", b"\0" * 9), ("a.ass", b"x"), ("a.ttml", b"<tt>"),
     ("a.txt", b"\x81"), ("a.html", b"\x81")],
)  # fmt: skip
def test_errors_name_the_file_and_no_path_of_the_server(
    api: Api, name: str, content: bytes
) -> None:
    form = {"source": "en", "target": "de"}
    answer = api.post("translate_file", files={"file": (name, content)}, data=form)
    assert answer.status_code == 400, answer.text
    message = answer.json()["error"]
    assert name in message
    assert tempfile.gettempdir() not in message
    assert "edgeapp-run" not in message


def test_files_of_strangers_take_no_place_of_others(
    thread_server: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the header or the query is checked before a file is stored; one in the form after,
    and until then the file counts among those of strangers."""
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("phone")
    read: list[str] = []
    real = FormUploads.read

    async def noting(self: Any, request: Any, person: str, **options: Any) -> Any:
        read.append(person)
        return await real(self, request, person, **options)

    monkeypatch.setattr(FormUploads, "read", noting)
    url = thread_server(host="0.0.0.0", tokens=tokens).replace("0.0.0.0", "127.0.0.1")

    def post(key: str = "", **options: Any) -> int:
        form = {"source": "de", "target": "de"} | ({"api_key": key} if key else {})
        file = {"file": ("a.txt", bytes(7 << 20))}
        answer = httpx.post(f"{url}translate_file", files=file, data=form, timeout=60, **options)
        return answer.status_code

    wrong, right = ({"authorization": f"Bearer {key}"} for key in ("wrong", secret))
    assert post(headers=wrong) == 403
    assert post(params={"api_key": "wrong"}) == 403
    assert read == [], "nothing was stored"
    assert post(headers=right) == 200
    assert post(params={"api_key": secret}) == 200
    assert read == ["user token phone"] * 2
    assert post() == post("wrong") == 403
    assert post(secret) == 200
    assert read[2:] == ["127.0.0.1"] * 3
    # Two of this address arrive and do not end.
    head = (
        "POST /translate_file HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 8000000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x"
    )
    parts = urlsplit(url)
    with ExitStack() as stack:
        for count in (6, 7):
            line = socket.create_connection((parts.hostname or "", parts.port or 0), 30)
            stack.enter_context(line).sendall(head.encode())
            deadline = time.monotonic() + 60
            while len(read) < count:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert post(secret) == 429, "its key may be anything until it has arrived"
        assert post(headers=right) == 200


@pytest.mark.parametrize("first", ["key", "file"])
def test_a_wrong_key_in_a_form_is_refused_as_soon_as_it_has_come(
    thread_server: Callable[..., str], tmp_path: Path, first: str
) -> None:
    """LibreTranslate's page sends the file first, most programs send it last."""
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("phone")
    url = thread_server(host="0.0.0.0", tokens=tokens).replace("0.0.0.0", "127.0.0.1")

    def answer(key: str, whole: bool) -> int:
        """The status of the reply to a form, or to a form that does not end."""
        parts = {
            "key": f'Content-Disposition: form-data; name="api_key"\r\n\r\n{key}',
            "file": 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nGut.',
            "source": 'Content-Disposition: form-data; name="source"\r\n\r\nde',
            "target": 'Content-Disposition: form-data; name="target"\r\n\r\nde',
        }
        ordered = [parts.pop(first), *parts.values()]
        body = "--x\r\n" + "\r\n--x\r\n".join(ordered)
        length = len(body) + (9 if whole else 1_000_000)
        sent = body + "\r\n--x--\r\n" if whole else body
        connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
        with closing(connection):
            connection.putrequest("POST", "/translate_file")
            connection.putheader("Content-Type", "multipart/form-data; boundary=x")
            connection.putheader("Content-Length", str(length))
            connection.endheaders(sent.encode())
            return connection.getresponse().status

    assert answer("wrong", whole=False) == 403
    assert answer(secret, whole=True) == 200


def test_a_key_in_the_body_is_a_token(thread_server: Callable[..., str], tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("phone")
    url = thread_server(host="0.0.0.0", tokens=tokens).replace("0.0.0.0", "127.0.0.1")

    def detect(**fields: str) -> httpx.Response:
        return httpx.post(f"{url}detect", data={"q": "Good morning.", **fields})

    assert detect().status_code == 403
    assert detect(api_key="wrong").json() == {"error": "Invalid API key"}
    assert detect(api_key=secret).status_code == 200
    assert [detect(api_key="wrong").status_code for _ in range(11)][-1] == 429
    assert detect(api_key=secret).status_code == 200
    headers = {"authorization": "Bearer wrong"}
    assert httpx.post(f"{url}detect", data={"q": "x"}, headers=headers).status_code == 429


def test_pairs_through_english(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = (("a", "de", "en"), ("b", "en", "fr"), ("c", "ja", "ko"))
    options = PickerOptions((), tuple(TranslatorOption(*pair) for pair in pairs))
    monkeypatch.setattr("edgeapp.server.api.text_translation.picker_options", lambda: options)
    assert translatable_pairs() == {"de": {"en", "fr"}, "en": {"fr"}, "ja": {"ko"}}


def test_pairs_of_a_model_with_many_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The picker names one target for each of its sources, and then every target once."""
    pairs: list[tuple[str | None, str]] = [("de", "en"), ("en", "de"), ("fr", "de")]
    pairs += [(None, "de"), (None, "en"), (None, "fr")]
    many = [TranslatorOption("many", *pair) for pair in pairs]
    options = PickerOptions((), (*many, TranslatorOption("group", None, "ja")))
    monkeypatch.setattr("edgeapp.server.api.text_translation.picker_options", lambda: options)
    assert translatable_pairs() == {"de": {"en", "fr"}, "en": {"de", "fr"}, "fr": {"de", "en"}}


def test_translation_through_english_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bundled models stand for German → English → French."""
    from edgeapp.model_pool import ModelPool
    from pipelines import ModelNotFound

    real = ModelPool.translator

    def translator(self: Any, name: Any, source: Any, target: Any, shortlist: bool = False) -> Any:
        if (source, target) == ("de", "fr"):
            raise ModelNotFound("no model for de → fr")
        return real(self, name, source, "de" if target == "fr" else target, shortlist)

    monkeypatch.setattr(ModelPool, "translator", translator)
    monkeypatch.setattr(
        "edgeapp.server.api.libretranslate.translatable_pairs",
        lambda: {"de": {"en", "fr"}, "en": {"fr"}},
    )
    asked = {"q": "<p>Wo ist der <b>Bahnhof</b>?</p>", "source": "de", "target": "fr"}
    answer = api.post("translate", json={**asked, "format": "html"}).json()
    assert answer["via"] == "en"
    assert "<b>Bahnhof</b>" in answer["translatedText"]


def test_the_python_client(api: Api) -> None:
    libretranslatepy = pytest.importorskip("libretranslatepy", reason="of the extra 'test'")
    client = libretranslatepy.LibreTranslateAPI(api.url)
    assert "Bahnhof" in client.translate(QUESTION["q"], "en", "de")
    assert client.detect("Wo ist der Bahnhof, und wann fährt der Zug?")[0]["language"] == "de"
    assert "en" in {each["code"] for each in client.languages()}
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.translate("x", "en", "xx")
    assert "error" in json.load(io.BytesIO(refused.value.read()))


def test_an_encoding_that_cannot_be_told_is_an_error_without_options_of_the_command_line(
    api: Api,
) -> None:
    file = {"file": ("short.txt", "Привет!\n".encode("koi8-r"))}
    answer = api.post("translate_file", files=file, data={"source": "en", "target": "de"})
    assert answer.status_code == 400
    assert answer.json()["error"].endswith("not UTF-8 text; convert the file to UTF-8")
