"""Playlists and other files that name files and addresses: none of them is opened or asked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

from tests.asr.audio.hostile import wav
from tests.campaign import part
from tests.campaign.mutate import mutate
from tests.campaign.part import MB, Case, Failed, Limits, printed
from tests.campaign.sandbox import REPOSITORY
from tests.campaign.watch import Ports, unopened

# {x}: a target. Names: the extension by which libav might choose a demuxer.
PLAYLISTS = {
    "m3u8": "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{x}\n#EXT-X-ENDLIST\n",
    "key.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXT-X-KEY:METHOD=AES-128,URI=\"{x}\"\n"
    "#EXTINF:5,\n{x}\n#EXT-X-ENDLIST\n",
    "map.m3u8": "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:5\n#EXT-X-MAP:URI=\"{x}\"\n"
    "#EXTINF:5,\n{x}\n#EXT-X-ENDLIST\n",
    "variant.m3u8": "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",URI=\"{x}\"\n"
    "#EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"a\"\n{x}\n",
    "m3u": "#EXTM3U\n#EXTINF:1,a\n{x}\n",
    "ffconcat": "ffconcat version 1.0\nfile '{x}'\nduration 1\nfile '{x}'\n",
    "concat.txt": "file '{x}'\nfile '{x}'\n",
    "mpd": "<?xml version=\"1.0\"?><MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"static\" "
    "mediaPresentationDuration=\"PT5S\"><Period><AdaptationSet mimeType=\"audio/mp4\">"
    "<Representation id=\"1\" bandwidth=\"1\"><BaseURL>{x}</BaseURL>"
    "<SegmentList duration=\"5\"><Initialization sourceURL=\"{x}\"/><SegmentURL media=\"{x}\"/>"
    "</SegmentList></Representation></AdaptationSet></Period></MPD>",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=a\nc=IN IP4 127.0.0.1\nt=0 0\n"
    "m=audio {udp} RTP/AVP 0\na=control:{x}\n",
    "xspf": "<?xml version=\"1.0\"?><playlist version=\"1\" xmlns=\"http://xspf.org/ns/0/\">"
    "<trackList><track><location>{x}</location></track></trackList></playlist>",
    "pls": "[playlist]\nFile1={x}\nTitle1=a\nLength1=1\nNumberOfEntries=1\nVersion=2\n",
    "asx": "<asx version=\"3.0\"><entry><ref href=\"{x}\"/></entry></asx>",
    "redirect.asx": "[Reference]\nRef1={x}\nRef2={x}\n",
    "wpl": "<?wpl version=\"1.0\"?><smil><body><seq><media src=\"{x}\"/></seq></body></smil>",
    "smil": "<smil><body><audio src=\"{x}\"/></body></smil>",
    "ram": "{x}\n",
    "rtsptext.mov": "RTSPtext\n{x}\n",
    "smptext.mov": "SMILtext<smil><body><audio src=\"{x}\"/></body></smil>",
    "qtl": "<?xml version=\"1.0\"?><?quicktime type=\"application/x-quicktime-media-link\"?>"
    "<embed src=\"{x}\"/>",
    "ism": "<?xml version=\"1.0\"?><smil><body><switch><audio src=\"{x}\"/></switch></body></smil>",
    "cue": "FILE \"{x}\" WAVE\n  TRACK 01 AUDIO\n    INDEX 01 00:00:00\n",
    "ffmeta": ";FFMETADATA1\ntitle={x}\n",
    "idx": "# VobSub index file, v7 (do not modify this line!)\nid: en, index: 0\n"
    "timestamp: 00:00:00:000, filepos: 0\n",
    "url": "[InternetShortcut]\nURL={x}\n",
    "vqf": "{x}",
    "html": "<html><body><audio src=\"{x}\"></audio></body></html>",
    "svg": "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\">"
    "<image xlink:href=\"{x}\"/></svg>",
    "imf": "<?xml version=\"1.0\"?><CompositionPlaylist xmlns=\"http://www.smpte-ra.org/schemas/"
    "2067-3/2016\"><Id>urn:uuid:00000000-0000-0000-0000-000000000000</Id><SegmentList/>"
    "</CompositionPlaylist>",
}  # fmt: skip
TARGETS = (
    "canary.wav", "{canary}", "file:{canary}", "file://{canary}", "../canary/canary.wav",
    "http://127.0.0.1:{tcp}/a.wav", "https://127.0.0.1:{tcp}/a.wav", "tcp://127.0.0.1:{tcp}",
    "udp://127.0.0.1:{udp}", "udp://@:{udp}", "rtp://127.0.0.1:{udp}", "rtsp://127.0.0.1:{tcp}/a",
    "rtmp://127.0.0.1:{tcp}/a/b", "ftp://127.0.0.1:{tcp}/a.wav", "mmsh://127.0.0.1:{tcp}/a",
    "gopher://127.0.0.1:{tcp}/a", "icecast://127.0.0.1:{tcp}/a", "sctp://127.0.0.1:{tcp}",
    "srtp://127.0.0.1:{udp}", "tls://127.0.0.1:{tcp}", "concat:{canary}|{canary}",
    "subfile,,start,0,end,100,,:{canary}", "crypto:{canary}", "async:{canary}", "cache:{canary}",
    "hls+file:{canary}", "hls+http://127.0.0.1:{tcp}/a.m3u8", "httpproxy://127.0.0.1:{tcp}",
    "concatf:{canary}", "ffrtmphttp://127.0.0.1:{tcp}/a", "md5:{folder}/made", "pipe:0", "fd:0",
    "data:audio/wav;base64,UklGRg==", "unix:{folder}/socket", "lavfi:sine",
    "movie={canary}", "\\\\127.0.0.1\\share\\a.wav",
)  # fmt: skip
# What a process does with addresses and files, in strace's words.
_TRACED = "socket,connect,bind,open,openat,openat2,creat,unlink,rename,execve"
_READ_ONE = (
    "import os, sys\n"
    "from pipelines.asr.audio.decode import load_audio\n"
    "from pipelines.errors import AudioError\n"
    "import av, numpy\n"
    "try: print(len(load_audio(sys.argv[1])))\n"
    "except AudioError: print('AudioError')\n"
)


class Campaign(part.Part):
    """Data: the file, with {x}, {udp} … in place of what is known when it runs."""

    name = "references"
    limits = Limits(500 * MB, 4096 * MB, cpu_s=20, wall_s=40)
    shrinks = True
    fixed = len(PLAYLISTS)

    def prepare(self) -> None:
        self.strace = shutil.which("strace")
        import pipelines.asr.audio.decode  # noqa: F401

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        name = sorted(PLAYLISTS)[seed % len(PLAYLISTS)]
        text = PLAYLISTS[name]
        for _ in range(text.count("{x}")):
            text = text.replace("{x}", random.choice(TARGETS), 1)
        data = text.encode()
        if random.random() < 0.3:
            data = mutate(data, random)
        if random.random() < 0.2:  # a playlist behind the magic number of a recording
            data = wav(16_000, 1, b"")[: random.choice((4, 12, 44))] + data
        return Case(name + ".traced" * (self.strace is not None and random.random() < 0.15), data)

    def sample(self) -> list[Case]:
        cases = [self.generate(seed) for seed in range(len(PLAYLISTS))]
        untraced = [case for case in cases if not case.label.endswith(".traced")]
        return [case for case in cases if case not in untraced][:1] + untraced

    def run(self, case: Case, folder: Path) -> str:
        name = case.label.removesuffix(".traced")
        place, canary = folder / "place", folder / "canary"
        for made in (place, canary):
            made.mkdir()
            (made / "canary.wav").write_bytes(wav(16_000, 1, bytes(32_000)))
        path = place / "in" / f"list.{name}"
        path.parent.mkdir()
        (path.parent / "canary.wav").symlink_to(canary / "canary.wav")
        with Ports() as ports, unopened(canary):
            known = {"canary": str(canary / "canary.wav"), "folder": str(place)}
            known |= {"tcp": str(ports.tcp), "udp": str(ports.udp)}
            path.write_bytes(re.sub(
                rb"{(canary|folder|tcp|udp)}", lambda m: known[m[1].decode()].encode(), case.data
            ))  # fmt: skip
            outcome = self._traced(path) if case.label.endswith(".traced") else _read(path)
            ports.check()
        if said := printed(folder):
            raise Failed(f"the libraries print: {said[:1500]}")
        left = {p.name for p in place.iterdir()}
        if left != {"canary.wav", "in"}:
            raise Failed(f"files were made: {left}")
        return outcome

    def _traced(self, path: Path) -> str:
        """As `_read`, in a process whose system calls are looked at."""
        log = path.parent / "strace.log"
        command = [str(self.strace), "-f", "-qq", "-e", f"trace={_TRACED}", "-o", str(log)]
        command += [sys.executable, "-c", _READ_ONE, str(path)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30)
        if done.returncode or not done.stdout.strip():
            raise Failed(f"exit code {done.returncode}: {done.stderr[-1000:]}")
        after = log.read_text("utf-8", "replace").partition(json.dumps(str(path))[1:-1])[2]
        for line in after.splitlines()[1:]:
            call = line.partition(" ")[2].strip()
            harmless = "/proc/" in call or "/sys/" in call or ".so" in call or "/lib/" in call
            if call.startswith(("socket", "connect", "bind", "execve", "creat", "unlink")) or (
                call.startswith("open") and not harmless
            ):
                raise Failed(f"a system call after the file was opened: {call[:200]}")
        return "traced " + ("AudioError" if "AudioError" in done.stdout else "read")


def _read(path: Path) -> str:
    from pipelines.asr.audio.decode import load_audio
    from pipelines.errors import AudioError

    outcomes = []
    for source in (path, path.open("rb")):
        try:
            load_audio(source)
            outcomes.append("read")
        except AudioError:
            outcomes.append("AudioError")
    return " and ".join(dict.fromkeys(outcomes))
