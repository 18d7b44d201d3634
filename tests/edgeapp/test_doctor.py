"""`edgeapp doctor` where all is well, and where something is broken: it never fails itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeapp.doctor import checks, examination
from edgeapp.doctor.findings import Finding, State, as_object, as_text, healthy
from pipelines.hub import cache_folder


def doctor(
    folder: Path, *arguments: str, broken: dict[str, str] | None = None, **environment: str
) -> tuple[int, str]:
    """Run the command. broken: module → what its import does."""
    modules = folder / "modules"
    modules.mkdir()
    for name, code in (broken or {}).items():
        (modules / f"{name}.py").write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "edgeapp", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(modules), os.environ["PYTHONPATH"]]),
            "EDGEAPP_CONFIG": str(folder / "config.toml"),
            "HF_HUB_CACHE": str(folder / "models"),
            **environment,
        },
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def of_area(out: str, area: str) -> list[dict[str, Any]]:
    return [finding for finding in json.loads(out)["findings"] if finding["area"] == area]


@pytest.mark.slow
def test_a_machine_on_which_all_works(tmp_path: Path) -> None:
    code, out = doctor(tmp_path, "--json", "--no-microphone")
    assert code == 0, out
    whole = json.loads(out)
    assert whole["healthy"] is True
    areas = {finding["area"] for finding in whole["findings"]}
    assert areas == {"Versions", "Settings", "Models", "Disk", "CPU", "GPU", "Engine"}
    (advice,) = {f["advice"] for f in of_area(out, "Models") if "recognition" in f["text"]}
    assert advice == "edgeapp models pull base"


@pytest.mark.slow
def test_torch_that_cannot_be_imported_and_a_broken_settings_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("modle = 3\n")
    fails = "raise ImportError('libtorch_cpu.so: cannot open shared object file')"
    code, out = doctor(tmp_path, "--json", "--no-microphone", broken={"torch": fails})
    assert code == 1
    (engine,) = of_area(out, "Engine")
    assert engine["state"] == "broken"
    assert "libtorch_cpu.so" in engine["text"]
    assert "pip install" in engine["advice"]
    (settings,) = of_area(out, "Settings")
    assert (settings["state"], "modle" in settings["text"]) == ("broken", True)
    assert of_area(out, "Models"), "the other checks are done"


@pytest.mark.slow
def test_libraries_that_crash(tmp_path: Path) -> None:
    dies = {"torch": "import os\nos.kill(os.getpid(), 4)", "sounddevice": "import os\nos.abort()"}
    code, out = doctor(tmp_path, broken=dies)
    assert code == 1
    assert "!!  Engine      it was ended by SIGILL" in out
    assert "--  Microphone  it was ended by SIGABRT" in out, "no microphone is needed for files"


@pytest.mark.parametrize(
    ("repository", "config"),
    [
        ("openai/whisper-small", {"model_type": "whisper"}),
        ("UsefulSensors/moonshine-tiny", {"model_type": "moonshine"}),
        (
            "google/umt5-small",
            {"model_type": "umt5", "architectures": ["UMT5ForConditionalGeneration"]},
        ),
        (
            "microsoft/trocr-base",
            {
                "model_type": "vision-encoder-decoder",
                "architectures": ["VisionEncoderDecoderModel"],
            },
        ),
    ],
)
def test_a_model_that_is_not_whole_is_named(
    repository: str, config: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    for name, content in ((repository, config), ("someone/gpt", {"model_type": "gpt2"})):
        snapshot = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(content))
    found = [f for f in checks.CHECKS["Models"]() if "cannot be used" in f.text]
    (finding,) = found
    assert repository in finding.text
    assert "gpt" not in finding.text
    assert finding.advice == f"edgeapp models path {repository} says why"


def test_without_a_recognizer_it_says_what_to_do(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [f.text for f in checks.CHECKS["Models"]() if f.state is State.OK]
    assert "speech is recognized by demo" in named, "as the sandbox's settings say"
    monkeypatch.delenv("EDGEAPP_MODEL")
    (found,) = [f for f in checks.CHECKS["Models"]() if "no recognizer is" in f.text]
    assert found.state is State.MISSING
    assert found.advice == "edgeapp models pull base"
    findings = list(checks.CHECKS["Models"]())
    assert not any("recognized by" in f.text for f in findings)
    assert [f.advice for f in findings].count(found.advice) == 1, "it is said once"


def test_an_error_in_a_check_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise PermissionError(13, "Permission denied", "/models")

    monkeypatch.setattr(examination, "CHECKS", {"Disk": fail})
    monkeypatch.setattr(examination, "_start", lambda name: None)
    monkeypatch.setattr(examination, "_collect", lambda name, process: [])
    (finding,) = examination.examine()
    assert (finding.area, finding.state) == ("Disk", State.BROKEN)
    assert "Permission denied" in finding.text


def test_missing_and_old_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["numpy", "no-such-package>=2", "rich>=10000", 'no-such-too; extra == "test"']
    monkeypatch.setattr(checks.metadata, "requires", lambda _: wanted)
    broken = [f for f in checks.CHECKS["Versions"]() if f.state is State.BROKEN]
    assert [f.advice for f in broken] == [
        'pip install "no-such-package>=2"',
        'pip install "rich>=10000"',
    ]


def test_the_report() -> None:
    findings = [
        Finding("GPU", State.OK, "none"),
        Finding("GPU", State.MISSING, "no driver", "install one"),
    ]
    assert as_text(findings) == "ok  GPU  none\n--       no driver\n         -> install one"
    assert healthy(findings)
    assert as_object([*findings, Finding("Disk", State.BROKEN, "x")])["healthy"] is False
