"""LibreTranslate's interface, and its Python client."""

from __future__ import annotations

import io
import json
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.api.text_translation import translatable_pairs
from edgeapp.server.page.picker_options import PickerOptions, TranslatorOption
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
