"""`edgeapp translate` and the page's pickers with a model that needs both languages."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeapp.cli import main
from edgeapp.model_pool import ModelPool
from edgeapp.server.page.picker_options import picker_options
from edgeapp.settings import Settings

pytestmark = pytest.mark.usefixtures("kernels")

Folders = Callable[..., Path]


@pytest.fixture(scope="module")
def nllb(many_folder: Folders) -> Path:
    return many_folder("nllb-200-distilled-600M", seed=1)


def translated(
    nllb: Path, text: str, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
        patch.setattr(sys, "argv", ["edgeapp", "translate", "-m", str(nllb), *options])
        with pytest.raises(SystemExit) as stop:
            main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.slow
@pytest.mark.parametrize(
    "languages",
    [("en", "de"), ("English", "German"), ("eng_Latn", "deu_Latn"), ("en_XX", "de-AT")],
)
def test_lines_in_lines_out(
    nllb: Path, capsys: pytest.CaptureFixture[str], languages: tuple[str, str]
) -> None:
    source, target = languages
    text = "We want some bread.\n\nSee the station.\n"
    code, out, err = translated(nllb, text, capsys, "--from", source, "--to", target)
    assert code == 0, err
    assert len(out.splitlines()) == 3
    assert out.splitlines()[1] == ""
    assert out == translated(nllb, text, capsys, "--from", "en", "--to", "de")[1]


@pytest.mark.slow
def test_the_script_that_was_typed_counts(
    nllb: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "talk.txt").write_text("We want some bread.\n", encoding="utf-8")
    for target in ("zho_Hant", "zho_Hans"):
        arguments = (str(tmp_path / "talk.txt"), "-o", f"{tmp_path}/", "-f", "en", "-t", target)
        code, _, err = translated(nllb, "", capsys, *arguments)
        assert code == 0, err
        assert (tmp_path / f"talk.{target}.txt").is_file()


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (
            ("--to", "de"),
            ("needs the language of the text: name it with --from", "it has ace_Arab,"),
            2,
        ),
        (("--from", "en"), ("needs a target language; it has ace_Arab,",), 1),
        (
            ("--from", "en", "--to", "Klingon"),
            ("--to Klingon: unknown language",),
            2,
        ),
        (("--from", "tlh", "--to", "de"), ("does not translate from 'tlh'; it has ace_Arab",), 3),
    ],
)
def test_missing_and_unknown_languages_are_reported(
    nllb: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: tuple[str, ...],
    code: int,
) -> None:
    ended, out, err = translated(nllb, "We want some bread.\n", capsys, *options)
    assert [err.count(part) for part in said] == [1] * len(said)
    assert (ended, out) == (code, "")
    assert "Traceback" not in err


def test_live_translation_is_told_the_language_once(nllb: Path) -> None:
    """Whoever asks the workshop for a pair need not say again what is spoken."""
    from pipelines.translation import TranslateOptions

    made = ModelPool(Settings(threads=1)).translator(str(nllb), "en", "de")
    done = made.translate("We want some bread.", TranslateOptions(target="de"))
    assert done.source


def test_the_page_offers_its_languages(hub_cache: Path, nllb: Path) -> None:
    storage = hub_cache / "models--facebook--nllb-200-distilled-600M"
    (storage / "refs").mkdir(parents=True)
    (storage / "refs" / "main").write_text("a" * 40, "utf-8")
    (storage / "snapshots").mkdir()
    (storage / "snapshots" / ("a" * 40)).symlink_to(nllb)
    known = [pair for pair in picker_options().pairs if pair.model == "nllb-200-distilled-600m"]
    assert {"en", "de", "fr", "zh", "uk"} <= {pair.source for pair in known if pair.source}
    assert {"en", "de", "fr", "zh", "uk"} <= {pair.target for pair in known if not pair.source}
    assert all(pair.source != pair.target for pair in known)
    assert len(known) < 500
