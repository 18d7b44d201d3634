"""A hub that is hostile or broken: one clear line, and nothing outside the cache changes."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import part
from tests.campaign.mutate import mutate
from tests.campaign.part import MB, Case, Failed, Limits, printed
from tests.fixtures.hub import Answer, Hub
from tests.hub.conftest import TINY, WEIGHTS, around, opus_files, whisper_files

NAMES = ("config.json", "vocab.json", WEIGHTS, "tokenizer.json", "")
PATHS = ("../../../../x", "/etc/x", "..", "a/../../x", "C:\\x", "\\\\server\\x", "x\0", "\x1b[2Jx",
         "con.safetensors", "x" * 300, "", "sub/model.safetensors", "CONFIG.JSON", "ü" * 200,
         "model.safetensors\n", ".git/hooks/post-checkout", "a//b", "%2e%2e/x", "~/x")  # fmt: skip
VALUES: tuple[Any, ...] = (None, -1, 0, 1, 1.5, "12", [1], {}, True, 10**30, 1 << 40, "a" * 40,
                           "A" * 40, "a" * 64, "../x", "", "main", [[]], "\ud800")  # fmt: skip
HEADERS: tuple[tuple[str, str | None], ...] = (
    ("ETag", '"../../x"'), ("ETag", "x" * 4000), ("X-Repo-Commit", "../x"), ("Content-Length", "5"),
    ("Content-Length", "-1"), ("Content-Length", "99999999999999"), ("Content-Length", None),
    ("Content-Encoding", "gzip"), ("Content-Range", "bytes 5-9/10"), ("Location", "file:///etc/passwd"),
    ("Location", "http://169.254.169.254/latest"), ("Location", "//evil.example/x"),
    ("Location", "/"), ("X-Linked-Size", "-5"), ("X-Error-Code", "GatedRepo"),
    ("Transfer-Encoding", "chunked"), ("Set-Cookie", "a=b" * 900), ("Retry-After", "99999"),
    ("Content-Type", "text/html"),
)  # fmt: skip
STATUSES = (200, 200, 200, 206, 204, 301, 302, 307, 308, 304, 400, 401, 403, 404, 416, 418, 429,
            500, 503, 999)  # fmt: skip
CANARIES = ("config.json", "x", "etc/passwd", "home/.bashrc")


class Campaign(part.Part):
    """Data: JSON with what is dishonest about the hub."""

    name = "hub"
    limits = Limits(300 * MB, 2048 * MB, cpu_s=30, wall_s=45)
    fixed = 20

    def prepare(self) -> None:
        import huggingface_hub.constants
        import huggingface_hub.utils  # noqa: F401

        import pipelines.hub  # noqa: F401

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        spec: dict[str, Any] = {"family": random.choice(("whisper", "opus"))}
        for _ in range(random.choice((1, 1, 2, 3))):
            kind = random.choice(("listing", "listing", "answer", "answer", "cut", "shards"))
            spec.setdefault(kind, []).append(_dishonesty(kind, random))
        return Case("+".join(sorted(set(spec) - {"family"})), json.dumps(spec).encode())

    def sample(self) -> list[Case]:
        return [self.generate(seed) for seed in range(12)]

    def run(self, case: Case, folder: Path) -> str:
        from huggingface_hub import constants

        from pipelines.errors import EdgeError
        from pipelines.hub import pull

        spec = json.loads(case.data)
        files = whisper_files() if spec["family"] == "whisper" else opus_files()
        name = TINY if spec["family"] == "whisper" else "Helsinki-NLP/opus-mt-en-de"
        cache = folder / "cache"
        for canary in CANARIES:
            (folder / canary).parent.mkdir(parents=True, exist_ok=True)
            (folder / canary).write_text("not for the hub")
        hub = Hub()
        os.environ["HF_ENDPOINT"], constants.HF_HUB_OFFLINE = hub.url, False
        constants.HF_HUB_CACHE, constants.ENDPOINT = str(cache), hub.url
        constants.HUGGINGFACE_CO_URL_TEMPLATE = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        sleep, time.sleep = time.sleep, lambda _: None  # retries wait a second each
        try:
            _arrange(hub, name, files, spec)
            before = around(folder, cache)
            try:
                model = pull(name)
                outcome = "pulled"
                for file in model.folder.iterdir():
                    if file.name in files and file.read_bytes() != files[file.name]:
                        raise Failed(f"{file.name} is not what the honest hub has")
            except EdgeError as error:
                outcome, said = type(error).__name__, str(error)
                if "\n" in said or len(said) > 800 or not said.isprintable():
                    raise Failed(f"not a clear line: {said[:1500]!r}") from None
        finally:
            time.sleep = sleep
            hub.stop()
        after = {k: v for k, v in around(folder, cache).items() if not k.endswith("/.log")}
        if after != {k: v for k, v in before.items() if not k.endswith("/.log")}:
            raise Failed(f"files outside the cache changed: {sorted(set(after) ^ set(before))}")
        for link in cache.rglob("*"):
            if not link.resolve().is_relative_to(cache.resolve()):
                raise Failed(f"{link} leads out of the cache")
        if "Traceback" in printed(folder):
            raise Failed(printed(folder)[-1500:])
        return outcome


def _dishonesty(kind: str, random: Random) -> dict[str, Any]:
    if kind == "listing":
        field = random.choice(("rfilename", "size", "blobId", "lfs", "sha", "siblings", "add"))
        value = random.choice(PATHS) if field in ("rfilename", "add") else random.choice(VALUES)
        return {"field": field, "value": value, "name": random.choice(NAMES[:-1])}
    if kind == "answer":
        return {
            "name": random.choice(NAMES),
            "status": random.choice(STATUSES),
            "body": random.choice(("honest", "mutant", "empty", "endless", "text", "deep", "bomb")),
            "headers": dict(random.sample(HEADERS, random.choice((0, 1, 2)))),
            "seed": random.randrange(1 << 30),
        }
    if kind == "cut":
        cuts = [random.choice((0, 1, 100, 5000)) for _ in range(random.choice((1, 3, 30)))]
        return {"name": random.choice(NAMES[:-1]), "cuts": cuts}
    return {"shards": random.sample(PATHS, 3)}


def _arrange(hub: Hub, name: str, files: dict[str, bytes], spec: dict[str, Any]) -> None:
    files = dict(files)
    for entry in spec.get("shards", ()):
        index = {"weight_map": {str(i): shard for i, shard in enumerate(entry["shards"])}}
        files.pop(WEIGHTS, None)
        files[f"{WEIGHTS}.index.json"] = json.dumps(index).encode()
        files |= dict.fromkeys(entry["shards"], b"weights")
    hub.host_files(name, files)
    hub.listing = lambda info: _changed(info, spec.get("listing", ()))
    for entry in spec.get("cut", ()):
        hub.cuts[entry["name"]] = list(entry["cuts"])
    for entry in spec.get("answer", ()):
        honest = files.get(entry["name"], b'{"sha": "x"}')
        bodies: dict[str, Any] = {
            "honest": None, "empty": b"", "text": b"<html>Sign in</html>", "deep": b"[" * 500_000,
            "mutant": mutate(honest, Random(entry["seed"])),
            "endless": itertools.repeat(b" " * 65_536), "bomb": b"\x1f\x8b" + bytes(1000),
        }  # fmt: skip
        hub.answers[entry["name"]] = Answer(
            entry["status"], bodies[entry["body"]], entry["headers"]
        )


def _changed(info: dict[str, Any], changes: Any) -> Any:
    for change in changes:
        field, value = change["field"], change["value"]
        if field == "sha":
            info["sha"] = value
        elif field == "siblings":
            info["siblings"] = value
        elif field == "add" and isinstance(info["siblings"], list):
            info["siblings"].append({"rfilename": value, "size": 1, "blobId": "a" * 40})
        elif isinstance(info["siblings"], list):
            for entry in info["siblings"]:
                if isinstance(entry, dict) and entry.get("rfilename") == change["name"]:
                    entry[field] = value
    return info
