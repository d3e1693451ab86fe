"""Coverage-guided fuzzing (atheris, libFuzzer) of all that reads bytes or text of clients and carriers.

Run in the environment ``fuzz``: ``python -m tests.peers.fuzz_parsers RUNS SECONDS [TARGET...]``. Each target
is a process of its own, at most ``RUNS`` inputs or ``SECONDS`` long; nothing but a VoxwireError may leave a
parser, and no other invariant of a target may fail. An input that breaks one is printed. The last line is
JSON: ``{target: {"runs", "status", "said"}}``; the status is 0 where all was well.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "tests" / "gateway" / "dialects" / "captures"
LONGEST = 4096
"""Bytes of an input."""
SHORTER = {"segmenter": 160, "host": 64, "location": 256}
SLOWEST_S = 5
"""One that takes longer is a fault, whatever else the machine does meanwhile."""
AT_ONCE = 2
"""Processes."""
OURS = ("gateway", "sessions", "telephony", "tts_core")
MODULES = {
    "fault": "gateway.fault",
    "cartesia": "gateway.dialects.cartesia_wire",
    "elevenlabs": "gateway.dialects.elevenlabs_wire",
    "openai": "gateway.dialects.openai_wire",
    "deepgram": "gateway.dialects.deepgram_wire",
    "deepgram_v2": "gateway.dialects.deepgram_v2_wire",
    "vapi": "gateway.dialects.vapi",
    "jambonz": "gateway.dialects.jambonz_wire",
    "messages": "gateway.native.messages",
    "frames": "gateway.native.frames",
    "wyoming": "gateway.wyoming.wire",
    "media_streams": "telephony.media_streams.protocol",
    "sniff": "gateway.intake.sniff",
    "location": "gateway.intake.location",
    "security": "gateway.security",
    "segmenter": "tts_core.text.segmenter",
    "segment": "tts_core.text.segment",
    "errors": "tts_core.errors",
    "context": "sessions.context",
    "engine": "tts_core.engine",
}

Target = Callable[[bytes], None]


def load(instrument: Any) -> Any:
    """The modules under test, instrumented, as attributes."""
    with instrument(include=list(OURS)):
        return type("Modules", (), {name: import_module(path) for name, path in MODULES.items()})


def text_of(data: bytes) -> str | bytes:
    """What a socket hands over: mostly text; what is no UTF-8 as bytes, or with halves of surrogate pairs."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data if data[:1] < b"\x80" else data.decode("utf-8", "surrogateescape")


def targets(m: Any) -> dict[str, Target]:
    """What is called, by name. Each may raise VoxwireErrors and nothing else."""
    info = m.engine.EngineInfo("fuzz", "1", 24000, (m.engine.VoiceInfo("v", "V"),))
    base = m.context.ContextOptions()

    def query(data: bytes) -> dict[str, str]:
        return dict(parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=None))

    def cartesia(data: bytes) -> None:
        raw = text_of(data)
        m.cartesia.context_of(raw)
        request = m.cartesia.parse(raw)
        fmt, container = m.cartesia.format_of(request, containers=("raw", "wav"))
        voice = m.cartesia.voice_of(request)
        options = m.cartesia.options_of(request, base, fmt=fmt, voice=voice, languages=("en",))
        assert 0.6 <= options.speed <= 1.5 or request.speed is not None
        m.cartesia.encoder_of(request, fmt, container)

    def elevenlabs(data: bytes) -> None:
        raw = text_of(data)
        m.elevenlabs.context_of(raw)
        message = m.elevenlabs.parse(raw)
        assert isinstance(message.context, str)
        assert isinstance(message.credential, str)
        assert message.speed is None or 0.25 <= message.speed <= 4
        assert message.schedule is None or all(1 <= length <= 500 for length in message.schedule)

    def elevenlabs_query(data: bytes) -> None:
        params = m.elevenlabs.params_of(query(data))
        m.elevenlabs.options_of(params, base, voice="v", languages=("en",))

    def elevenlabs_body(data: bytes) -> None:
        body = m.elevenlabs.body_of(data)
        m.elevenlabs.speed_of(body.voice_settings)
        m.elevenlabs.seed_of(body.seed)
        m.elevenlabs.normalise_of(body.apply_text_normalization)
        m.elevenlabs.format_of(body.output_format)

    def openai(data: bytes) -> None:
        request = m.openai.parse(data)
        m.openai.format_of(request)
        m.openai.stand_in(m.openai.voice_of(request), info.voices, "v")

    def deepgram(data: bytes) -> None:
        m.deepgram.parse(text_of(data))

    def deepgram_query(data: bytes) -> None:
        for file in (False, True):
            params = m.deepgram.params_of(query(data), file=file)
            assert 0.7 <= params.speed <= 1.5
            m.deepgram.voice_for(params.model, info, "v", ["v"])

    def deepgram_body(data: bytes) -> None:
        assert m.deepgram.body_of(data)

    def deepgram_v2(data: bytes) -> None:
        message = m.deepgram_v2.parse(text_of(data))
        assert message.offset_ms is None or isinstance(message.offset_ms, int)

    def deepgram_v2_query(data: bytes) -> None:
        m.deepgram_v2.params_of(query(data), info)

    def vapi(data: bytes) -> None:
        asked = m.vapi.parse(data)
        assert isinstance(m.vapi.voice_of(asked, ""), str)

    def jambonz(data: bytes) -> None:
        m.jambonz.parse(text_of(data))

    def jambonz_body(data: bytes) -> None:
        body = m.jambonz.body_of(data)
        m.jambonz.check_language(body.language, ("en-US",))
        m.jambonz.plain(body.text or "")

    def jambonz_query(data: bytes) -> None:
        m.jambonz.file_format(query(data))
        m.jambonz.socket_format(query(data))

    def messages(data: bytes) -> None:
        raw = text_of(data)
        try:
            m.messages.decode(raw)
        except m.fault.UNREADABLE as error:
            m.fault.strings(raw, "type", "context")
            raise m.fault.bad_request(error) from None

    def frames(data: bytes) -> None:
        frame = m.frames.unpack(data)
        packed = m.frames.pack(frame.kind, frame.flags, frame.index, frame.seq, frame.start, frame.payload)
        assert m.frames.unpack(packed) == frame

    def wyoming(data: bytes) -> None:
        limits = m.wyoming.Limits(line=512, data=1024, payload=1024)
        found: list[Any] = []
        cut = data[0] if data else 0
        for pieces in ([data[1:]], [data[1 : 1 + cut], data[1 + cut :]]):
            reader = m.wyoming.Reader(limits)
            read: list[Any] = []
            for piece in pieces:
                read += reader.feed(piece)
            found.append([item if isinstance(item, m.wyoming.Event) else str(item) for item in read])
        assert found[0] == found[1]
        for item in found[0]:
            if isinstance(item, m.wyoming.Event):
                m.wyoming.text_of(item, 100)

    def media_streams(data: bytes) -> None:
        protocol = m.media_streams.Protocol()
        for line in data.split(b"\n"):
            protocol.receive_text(line.decode("utf-8", "surrogateescape"))

    def sniff(data: bytes) -> None:
        media = m.sniff.sniff(memoryview(data))
        assert 0 <= media.start <= len(data)
        if media.kind == "wav":
            wave = m.sniff.wave(memoryview(data))
            assert 0 <= wave.start <= wave.end <= len(data)

    def location(data: bytes) -> None:
        m.location.parse_location(data.decode("utf-8", "replace"))

    def host(data: bytes) -> None:
        m.security.split_host(data.decode("latin-1"))

    def segmenter(data: bytes) -> None:
        _segmented(m, data)

    return {name: made for name, made in locals().items() if callable(made) and name not in {"query", "m"}}


def _segmented(m: Any, data: bytes) -> None:
    """However a text is cut, the segments are the same and cover it; nothing is raised for any text."""
    mode, cut, text = (data + b"\0\0")[0], (data + b"\0\0")[1], data[2:].decode("utf-8", "surrogateescape")
    options = m.segment.TextOptions(clean=bool(mode & 1), tags=bool(mode & 2), normalise=bool(mode & 4))
    results = []
    for step in (len(text) or 1, 1 + cut % 7):
        front = m.segmenter.TextFrontEnd(options)
        found = []
        for at in range(0, len(text), step):
            found += front.feed(text[at : at + step])
        found += front.end()
        assert front.source == text
        results.append([segment.text for segment in found])
    assert results[0] == results[1], results
    front = m.segmenter.TextFrontEnd(options)
    for at in range(0, len(text), 5):
        front.feed(text[at : at + 5])
        (front.flush, front.release)[at % 2]()
    front.end()


SEEDS: dict[str, list[bytes]] = {
    "elevenlabs_query": [
        b"output_format=pcm_8000&auto_mode=true&inactivity_timeout=180&seed=1&language_code=en"
    ],
    "elevenlabs_body": [b'{"text":"x","seed":1,"voice_settings":{"speed":1.0},"output_format":"pcm_8000"}'],
    "openai": [b'{"input":"x","voice":{"id":"v"},"response_format":"pcm","speed":1.5,"stream_format":"sse"}'],
    "deepgram_query": [
        b"model=aura-2-thalia-en&encoding=linear16&sample_rate=8000&speed=1.0&container=none&bit_rate=1"
    ],
    "deepgram_body": [b'{"text":"x"}'],
    "deepgram_v2": [
        b'{"type":"Interrupt","playback_offset":{"type":"time_ms","value":1.5}}',
        b'{"type":"Configure","speed":1}',
    ],
    "deepgram_v2_query": [b"model=flux-en&encoding=linear16&sample_rate=8000&speed=1.0&expressivity=0"],
    "vapi": [
        b'{"messsage":{"type":"voice-request","text":"x","sampleRate":8000,"assistant":{"voice":{"voiceId":"v"}}}}'
    ],
    "jambonz": [b'{"type":"stream","text":"x"}', b'{"type":"flush"}', b'{"type":"stop"}'],
    "jambonz_body": [
        b'{"text":"<speak>a &amp; b<break/></speak>","type":"ssml","voice":"v","language":"en-US"}'
    ],
    "jambonz_query": [b"format=wav&sampleRate=8000"],
    "messages": [
        b'{"type":"hello","version":1,"resume":{"session":"s","key":"k","received":1}}',
        b'{"type":"open","context":"a","format":{"encoding":"mulaw","sample_rate":8000},"speed":1.0,"interrupt":true}',
        b'{"type":"text","context":"a","text":"x \\ud83d","seq":1}',
        b'{"type":"played","context":"a","sample":5}',
    ],
    "frames": [bytes([1, 1, 0, 0]) + bytes(24)],
    "wyoming": [
        b'\x09{"type":"synthesize","data":{"text":"x"}}\n',
        b'\x05{"type":"synthesize-chunk","data_length":12,"payload_length":2}\n{"text":"x"}ab{"type":"describe"}\n',
    ],
    "media_streams": [
        b'{"event":"connected","protocol":"Call","version":"1.0.0"}\n{"event":"start","sequenceNumber":"1","streamSid":'
        b'"MZ1","start":{"streamSid":"MZ1","accountSid":"AC","callSid":"CA","tracks":["inbound"],"customParameters":{},'
        b'"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}}}\n{"event":"media","sequenceNumber"'
        b':"2","streamSid":"MZ1","media":{"track":"inbound","chunk":"1","timestamp":"5","payload":"/v8="}}\n{"event":'
        b'"mark","sequenceNumber":"3","streamSid":"MZ1","mark":{"name":"m"}}\n{"event":"dtmf","streamSid":"MZ1","dtmf":'
        b'{"track":"inbound_track","digit":"1"}}\n{"event":"stop","streamSid":"MZ1","stop":{}}'
    ],
    "sniff": [
        b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x04" + bytes(7),
        b"fLaC\0\0\0\x22" + bytes(34),
        b"OggS\0\x02" + bytes(20) + b"\x01\x13OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0",
        b"ID3\x04\0\0\0\0\0\x02\0\0\xff\xfb\x90\x64" + bytes(420),
        b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(16),
    ],
    "location": [b"https://user@files.example.com:443/a%20b?c=d#e", b"http://[::1]/", b"file:///etc/passwd"],
    "host": [b"localhost:8080", b"[::1]:80"],
    "segmenter": [
        b"\x07\x03It costs 3.50 on 12.05.2024, ask Dr. Li at a@b.co. <break time='1s'/> **x** `c`",
        b"\x07\x01```\ncode\n```\n<<h@|l>> <spell>AB1</spell> <speed ratio='1.2'/>1,234.5 e.g. www.x.com",
        b"\x07\x02| a | b |\n|---|---|\n| 1 | 2 |\n\n# It was 1999.",
    ],
}
"""What is valid, for a start; the captures of clients come on top."""


def seeds(name: str) -> Iterable[bytes]:
    """Inputs to begin with."""
    yield from SEEDS.get(name, [])
    for path in CAPTURES.glob(f"*{name}*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("dir") == "c2s" and "json" in row:
                yield json.dumps(row["json"]).encode()


def _fuzz(
    atheris: Any, name: str, target: Target, known: type[Exception], options: list[str], count: mmap.mmap
) -> None:
    """Fuzz one target in this process, which ends with it."""

    def one(data: bytes) -> None:
        count[:8] = (int.from_bytes(count[:8], "little") + 1).to_bytes(8, "little")
        try:
            target(data)
        except known:
            return
        except BaseException:
            print(f"{name}: {data!r}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            os._exit(70)

    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    for i, seed in enumerate(seeds(name)):
        (folder / str(i)).write_bytes(seed)
    if name in SHORTER:
        options = [*options, f"-max_len={SHORTER[name]}"]
    os.chdir(folder)  # where libFuzzer leaves an input that it was stopped at
    atheris.Setup(["fuzz", *options, str(folder)], one)
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Fuzz the targets; 1 where one failed."""
    atheris: Any = import_module("atheris")
    modules = load(atheris.instrument_imports)
    known = modules.errors.VoxwireError
    made = targets(modules)
    runs, seconds, *names = arguments
    options = [f"-runs={runs}", f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={SLOWEST_S}"]
    options += ["-seed=1", "-rss_limit_mb=2048", "-print_final_stats=0", "-verbosity=0"]
    report: dict[str, dict[str, Any]] = {}
    running: dict[int, tuple[str, mmap.mmap, Path]] = {}
    waiting = [name for name in made if not names or name in names]
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                name = waiting.pop(0)
                count, log = mmap.mmap(-1, 8), Path(scratch) / f"{name}.log"
                pid = os.fork()
                if pid == 0:
                    out = os.open(log, os.O_CREAT | os.O_WRONLY)
                    os.dup2(out, 1)
                    os.dup2(out, 2)
                    _fuzz(atheris, name, made[name], known, options, count)
                    os._exit(0)
                running[pid] = (name, count, log)
            pid, ended = os.wait()
            name, count, log = running.pop(pid)
            status = os.waitstatus_to_exitcode(ended)
            said = log.read_text(encoding="utf-8", errors="replace")[-4000:] if status else ""
            report[name] = {"runs": int.from_bytes(count[:8], "little"), "status": status, "said": said}
            print(name, report[name]["runs"], status, said, flush=True)
    print(json.dumps(report))
    return int(any(found["status"] for found in report.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
