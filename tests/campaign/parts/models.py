"""Hostile model folders: an error or a model that works; no code runs, no other file is read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import part
from tests.campaign.mutate import mutate
from tests.campaign.part import MB, Case, Failed, Limits
from tests.campaign.sandbox import REPOSITORY
from tests.campaign.warm import import_all
from tests.campaign.watch import Ports, unopened
from tests.engine.weights.test_checkpoint_refused import Trap

BUNDLED = REPOSITORY / "assets" / "models"
VALUES = (None, True, -1, 0, 1, 2, 7, 1 << 31, 1 << 40, -(1 << 63), 10**400, 0.5, -1e308, "", "x",
          "../../canary/secret.json", "relu", [], [0], [1] * 5000, {}, {"a": 1}, "\u202e\x00",
          [[1, 2]], "1", 80, 51_865)  # fmt: skip
REFERENCES = (
    "../../canary/{name}",
    "{canary}/{name}",
    "file://{canary}/{name}",
    "http://127.0.0.1:{port}/{name}",
    "\\\\127.0.0.1\\{name}",
    "canary/{name}/..",
)
# Keys with which libraries look for code or for other files.
KEYS = ("auto_map", "_name_or_path", "tokenizer_file", "vocab_file", "custom_pipelines",
        "adapter_path", "base_model_name_or_path", "trust_remote_code", "quantization_config",
        "tokenizer_class", "name_or_path", "chat_template", "feature_extractor_type",
        "torch_dtype", "sp_model_kwargs", "source_spm",
        "target_spm", "separate_vocabs")  # fmt: skip
EDITS = ("value", "value", "value", "bytes", "bytes", "bytes", "header", "pickle", "code", "index",
         "reference", "delete", "folder", "deep", "nan", "torch", "swap", "zip")  # fmt: skip


class Campaign(part.Part):
    """Data: JSON with the bundled model and the edits of its folder."""

    name = "models"
    limits = Limits(1200 * MB, 8192 * MB, cpu_s=60, wall_s=90)
    fixed = 2 * len(EDITS)

    def prepare(self) -> None:
        import_all()

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        model = random.choice(("demo", "demo-en-de"))
        count = random.choice((1, 1, 1, 2, 4))
        first = EDITS[seed % len(EDITS)]
        kinds = [first, *(random.choice(EDITS) for _ in range(count - 1))]
        edits = [{"kind": kind, "seed": random.randrange(1 << 30)} for kind in kinds]
        return Case(f"{model}.{first}", json.dumps({"model": model, "edits": edits}).encode())

    def sample(self) -> list[Case]:
        return [self.generate(seed) for seed in range(len(EDITS))][::2]

    def run(self, case: Case, folder: Path) -> str:
        spec = json.loads(case.data)
        canary, model = folder / "canary", folder / "models" / "hostile"
        canary.mkdir()
        shutil.copytree(BUNDLED / spec["model"], model)
        names = sorted(path.name for path in model.iterdir())
        for name in (*names, "secret.json"):
            source = BUNDLED / spec["model"] / name
            (canary / name).write_bytes(source.read_bytes() if source.exists() else b"{}")
        with Ports() as ports:
            for edit in spec["edits"]:
                _edit(model, names, canary, ports.tcp, edit)
            os.chdir(model)  # a module in the working directory must not be imported
            with unopened(canary), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = _use(spec["model"], model)
            ports.check()
        if list(folder.rglob("sprung*")):
            raise Failed("code of the folder ran")
        return outcome


def _use(kind: str, folder: Path) -> str:
    """Load the model and use it once."""
    from pipelines import EdgeError, TranscribeOptions, Transcriber, TranslateOptions, Translator

    try:
        if kind == "demo":
            transcriber = Transcriber(str(folder), device="cpu", threads=1)
            path = REPOSITORY / "assets/samples/question.flac"
            text = "".join(s.text for s in transcriber.transcribe(path, TranscribeOptions()))
        else:
            translator = Translator(str(folder), device="cpu", threads=1)
            text = translator.translate("I am tired.", TranslateOptions()).text
    except EdgeError as error:
        if len(str(error)) > 2000 or "\n" in str(error):
            raise Failed(f"a message of {len(str(error))} characters: {str(error)[:300]}") from None
        return type(error).__name__
    return "works" if text else "works, no text"


def _edit(folder: Path, names: list[str], canary: Path, port: int, edit: dict[str, Any]) -> None:
    random = Random(edit["seed"])
    texts = [name for name in names if name.endswith(".json")]
    name = random.choice(texts if random.random() < 0.6 else names)
    path = folder / name
    if edit["kind"] in ("value", "reference", "deep", "nan"):
        path = folder / random.choice((*texts, "config.json", "config.json"))
    if not path.is_file():
        return
    edits: dict[str, Callable[[], None]] = {
        "value": lambda: _set(path, random, random.choice(VALUES)),
        "reference": lambda: _refer(path, random, canary, port),
        "bytes": lambda: _damage(path, random),
        "header": lambda: _header(folder / "model.safetensors", random),
        "pickle": lambda: _pickle(folder, random),
        "code": lambda: _code(folder),
        "index": lambda: _index(folder, random, canary, port),
        "delete": path.unlink,
        "folder": lambda: (path.unlink(), path.mkdir()),  # type: ignore[func-returns-value]
        "deep": lambda: _write(path, b"[" * random.choice((100, 100_000))),
        "nan": lambda: _set(path, random, float(random.choice(("nan", "inf", "-inf")))),
        "torch": lambda: _module(folder, random),
        "swap": lambda: _write(path, (folder / random.choice(names)).read_bytes()
                               if (folder / names[0]).is_file() else b""),
        "zip": lambda: _zip(folder, random),
    }  # fmt: skip
    try:
        edits[edit["kind"]]()
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError, TypeError):
        return  # an earlier edit has removed or damaged the file


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _damage(path: Path, random: Random) -> None:
    content = path.read_bytes()
    if content:
        path.write_bytes(mutate(content, random))


def _set(path: Path, random: Random, value: Any) -> None:
    """Give a random entry, at any depth, another value; sometimes leave it out."""
    try:
        tree = at = json.loads(path.read_bytes())
    except ValueError:
        return
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = random.choice(keys)
        if not isinstance(at[key], (dict, list)) or not at[key] or random.random() < 0.3:
            break
        at = at[key]
    if random.random() < 0.15:
        del at[key]
    else:
        at[key] = value
    path.write_text(json.dumps(tree), "utf-8")


def _refer(path: Path, random: Random, canary: Path, port: int) -> None:
    try:
        tree = json.loads(path.read_bytes())
    except ValueError:
        return
    if isinstance(tree, dict):
        for key in random.sample(KEYS, 3):
            target = random.choice(REFERENCES)
            named = target.format(canary=canary, name=path.name, port=port)
            tree[key] = {"AutoModel": f"{named}--evil.Model"} if key == "auto_map" else named
    path.write_text(json.dumps(tree), "utf-8")


def _header(path: Path, random: Random) -> None:
    """Change the header of a safetensors file, in its meaning or in its bytes."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + size], content[8 + size :]
    if random.random() < 0.5:
        tree = json.loads(header)
        key = random.choice([key for key in tree if key != "__metadata__"])
        field = random.choice(("shape", "dtype", "data_offsets"))
        tree[key][field] = random.choice(
            (["I64"], [1 << 62, 2], [-1, 5], [0, 0], "F64", "I8", "BF16", [1 << 40, 1 << 41], None)
        )
        header = json.dumps(tree).encode()
    else:
        header = mutate(header, random)
    size = random.choice((len(header), len(header), 0, 1 << 40, (1 << 64) - 1))
    path.write_bytes(struct.pack("<Q", size) + header + data)


def _pickle(folder: Path, random: Random) -> None:
    """Weights that run code when they are unpickled, in place of the safe ones."""
    import torch

    (folder / "model.safetensors").unlink(missing_ok=True)
    trap, path = Trap(folder.parent / "sprung"), folder / "pytorch_model.bin"
    if random.random() < 0.4:
        path.write_bytes(pickle.dumps({"a": trap}, protocol=random.randrange(6)))
    else:
        torch.save({"a": trap}, path, _use_new_zipfile_serialization=random.random() < 0.5)
    if random.random() < 0.3:
        path.write_bytes(mutate(path.read_bytes(), random))


def _code(folder: Path) -> None:
    """Modules that libraries might import from the folder."""
    config = json.loads((folder / "config.json").read_bytes())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    config["trust_remote_code"] = True
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    spring = f"import os\nos.makedirs({str(folder.parent / 'sprung')!r}, exist_ok=True)\n"
    for name in ("evil", "torch", "numpy", "json", "sentencepiece", "tokenizers", "modeling",
                 "__init__", "setup", "conftest", "sitecustomize", "regex"):  # fmt: skip
        (folder / f"{name}.py").write_text(spring, "utf-8")


def _index(folder: Path, random: Random, canary: Path, port: int) -> None:
    """An index of weights that lie elsewhere."""
    shard = random.choice(REFERENCES).format(
        canary=canary, name=random.choice(("model.safetensors", "secret.json")), port=port
    )
    weight_map = {"model.decoder.embed_tokens.weight": shard, "x": "model.safetensors"}
    name = random.choice(("model.safetensors", "pytorch_model.bin"))
    (folder / "model.safetensors").rename(folder / "kept.safetensors")
    content = json.dumps({"weight_map": weight_map})
    (folder / f"{name}.index.json").write_text(content, "utf-8")


def _module(folder: Path, random: Random) -> None:
    """A whole module or a tensor with storage that is not there, as torch saves it."""
    import torch

    (folder / "model.safetensors").unlink(missing_ok=True)
    values = (
        torch.nn.Linear(2, 2), [torch.zeros(2)], {"a": torch.zeros(2).to_sparse()}, {1: 2},
        {"a": torch.zeros(3, dtype=torch.complex64)}, {"model.shared.weight": torch.zeros(1)},
        {"a": torch.zeros(1).expand(1 << 40)},
    )  # fmt: skip
    torch.save(random.choice(values), folder / "pytorch_model.bin")


def _zip(folder: Path, random: Random) -> None:
    """A zip archive with names that lead elsewhere, or that unpacks to very much."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}, protocol=2))
        archive.writestr("archive/version", "3\n")
        archive.writestr(random.choice(("../../sprung.txt", "archive/data/0")), bytes(80 * MB))
