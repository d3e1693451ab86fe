"""What the gateway measures, for Prometheus.

Every label comes from a closed set of ours (dialects, reasons, routes, outcomes): nothing a client chose ever
becomes a label (trust.md S15). Each Metrics has its own registry, so that tests and several gateways in one
process do not mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sessions.events import ContextStats

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
DIALECTS = frozenset(
    {"native", "cartesia", "twilio", "elevenlabs", "openai", "deepgram", "vapi", "jambonz", "wyoming", "http"}
)
REASONS = frozenset(
    {"busy", "limit_exceeded", "draining", "unauthorised", "forbidden", "bad_request", "unknown_voice",
     "unsupported_format", "text_too_long", "engine_error", "engine_crashed", "engine_timeout", "sockets",
     "store_unavailable", "peer_violation", "context_idle", "unknown_context", "not_found", "host", "origin",
     "cannot_clone", "unknown_session", "unknown_receipt", "challenge_gone", "challenge_not_read",
     "max_active_conversations"}
    | {
        f"reference_{reason}"
        for reason in (
            "silent", "too_short", "too_long", "too_large", "clipped", "noisy", "empty", "unsupported",
            "damaged", "rate", "channels", "undecodable", "decoder_limit", "url_invalid", "address",
            "redirect", "fetch_timeout", "fetch_failed", "too_little_speech", "several_speakers",
            "other_speaker", "denied",
        )
    }
)  # fmt: skip
OUTCOMES = frozenset({"done", "cancelled", "failed"})

# 100 ms is a good turn, 2-3 s is thrown away by clients (protocols.md 0.6)
FIRST_AUDIO = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0)
GAP = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
LEAD = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 2.0, 3.0, 5.0)
# 5 ms is our bound for the loop; 20 ms is one frame of a phone
FINE = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
RTF = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)


def known(value: str, among: frozenset[str]) -> str:
    """``value`` if it is one of ours, else "other"."""
    return value if value in among else "other"


class _Totals(Collector):
    """A counter that somebody else counts."""

    def __init__(self, name: str, words: str, label: str, read: Callable[[], dict[str, int]]) -> None:
        self._name, self._words, self._label, self._read = name, words, label, read

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The totals now."""
        family = CounterMetricFamily(self._name, self._words, labels=[self._label])
        for value, total in self._read().items():
            family.add_metric([value], total)
        yield family


class _Gauges(Collector):
    """Gauges that somebody else reads, each under a name of its own."""

    def __init__(self, prefix: str, words: str, read: Callable[[], dict[str, float]]) -> None:
        self._prefix, self._words, self._read = prefix, words, read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The figures now."""
        for name, value in self._read().items():
            yield GaugeMetricFamily(f"{self._prefix}_{name}", self._words, value)


class Metrics:
    """The instruments, and one method per thing that happens."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        reg = self.registry

        def histogram(
            name: str, words: str, labels: tuple[str, ...], buckets: tuple[float, ...]
        ) -> Histogram:
            return Histogram(f"voxwire_{name}", words, labels, buckets=buckets, registry=reg)

        def counter(name: str, words: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"voxwire_{name}", words, labels, registry=reg)

        def gauge(name: str, words: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"voxwire_{name}", words, labels, registry=reg)

        by = ("dialect",)
        self.first_audio = histogram("first_audio_seconds", "First text to first audio sent", by, FIRST_AUDIO)
        self.leading_silence = histogram("leading_silence_seconds", "Silence before the first sound", by, GAP)
        self.underrun = histogram(
            "underrun_seconds", "Silence of a context that ran dry; 0 if clean", by, GAP
        )
        self.underruns = counter("underruns_total", "Times a listener ran dry while text was pending", by)
        self.queue_wait = histogram("queue_wait_seconds", "Segment ready to engine start", by, FIRST_AUDIO)
        self.rtf = histogram("context_rtf", "Engine seconds per second of audio, per context", by, RTF)
        self.audio = counter("audio_seconds_total", "Audio sent", by)
        self.characters = counter("characters_total", "Characters spoken", by)
        self.contexts = counter("contexts_total", "Contexts ended", (*by, "outcome"))
        self.active = gauge("active_contexts", "Contexts open now", by)
        self.sessions = gauge("sessions", "Sessions open now", by)
        self.lead = histogram("lead_seconds", "Audio sent ahead of the playout clock", by, LEAD)
        self.lateness = histogram(
            "frame_lateness_seconds", "Ticks of paced frames after their deadline", (), FINE
        )
        self.bytes = counter("socket_bytes_total", "Bytes over sockets", (*by, "direction"))
        self.refusals = counter("refusals_total", "Work refused", ("reason",))
        self.requests = counter("http_requests_total", "Requests answered", ("route", "status"))
        self.loop_lag = histogram("event_loop_lag_seconds", "How late the event loop woke", (), FINE)
        self.store_up = gauge("store_up", "1 while the store answers")
        self.draining = gauge("draining", "1 while shutting down")
        self.voices_made = counter("voice_enrolments_total", "Voices asked to be made", ("outcome",))
        self.voices_deleted = counter("voice_deletions_total", "Voices that were asked to be deleted")
        self.voice_lookups = 0
        """Times that a voice of a tenant's own was asked for."""
        self._engine = {
            name: gauge(f"engine_{name}", words)
            for name, words in {
                "xrt": "Seconds of audio made per second, lately",
                "slots": "Requests worked on at once",
                "free": "Idle slots",
                "queued": "Requests waiting",
                "alive": "Workers able to serve",
            }.items()
        }

    def watch_engine(self, name: str, read: Callable[[], float]) -> None:
        """Read an engine gauge (xrt, slots, free, queued, alive) by ``read`` at each scrape."""
        self._engine[name].set_function(read)

    def watch_engine_events(self, read: Callable[[], dict[str, int]]) -> None:
        """Read what else an engine counts (event -> times since the start) by ``read`` at each scrape."""
        self.registry.register(_Totals("voxwire_engine_events", "What the engine counts", "event", read))

    def watch_engine_gauges(self, read: Callable[[], dict[str, float]]) -> None:
        """Read what else an engine measures (name -> figure) by ``read`` at each scrape."""
        self.registry.register(_Gauges("voxwire_engine", "What the engine measures", read))

    def watch_phrases(self, read: Callable[[], dict[str, int]]) -> None:
        """Read the phrase cache's totals (result -> lookups since the start) by ``read`` at each scrape."""
        self.registry.register(_Totals("voxwire_phrase_cache", "Phrase cache lookups", "result", read))

    def watch_voices(self, read: Callable[[], dict[str, int]]) -> None:
        """Read the totals of opened voices (result -> lookups since the start) by ``read`` at each scrape."""
        self.registry.register(_Totals("voxwire_voice_cache", "Own voices looked up", "result", read))

    def context_opened(self, dialect: str) -> None:
        """A context began."""
        self.active.labels(known(dialect, DIALECTS)).inc()

    def context_closed(self, dialect: str, outcome: str, stats: ContextStats) -> None:
        """A context ended as ``done``, ``cancelled`` or ``failed``; times it never reached are left out."""
        name = known(dialect, DIALECTS)
        self.active.labels(name).dec()
        self.contexts.labels(name, known(outcome, OUTCOMES)).inc()
        for instrument, value in (
            (self.first_audio, stats.first_audio),
            (self.queue_wait, stats.queue_wait),
            (self.leading_silence, stats.leading_silence),
        ):
            if value >= 0:
                instrument.labels(name).observe(value)
        if stats.audio_s > 0:
            self.audio.labels(name).inc(stats.audio_s)
            self.underrun.labels(name).observe(stats.underrun_s)
            if stats.rtf > 0:
                self.rtf.labels(name).observe(stats.rtf)
        if stats.underruns:
            self.underruns.labels(name).inc(stats.underruns)
        if stats.characters:
            self.characters.labels(name).inc(stats.characters)

    def refused(self, reason: str) -> None:
        """Work was refused; ``reason`` is an error's code."""
        self.refusals.labels(known(reason, REASONS)).inc()

    def text(self) -> bytes:
        """The exposition in Prometheus text format."""
        return generate_latest(self.registry)
