from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import DIALECTS, OUTCOMES, REASONS, Metrics
from sessions.events import ContextStats


def read(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The exposition as a scraper reads it."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_a_context_counts_once_and_leaves_nothing_open() -> None:
    metrics = Metrics()
    native = (("dialect", "native"),)
    metrics.context_opened("native")
    assert read(metrics)["voxwire_active_contexts", native] == 1
    stats = ContextStats(
        queue_wait=0.01, first_audio=0.12, audio_s=2.0, rtf=0.1, underruns=2, underrun_s=0.3, characters=40
    )
    metrics.context_closed("native", "done", stats)
    seen = read(metrics)
    assert seen["voxwire_active_contexts", native] == 0
    assert seen["voxwire_first_audio_seconds_sum", native] == 0.12
    assert seen["voxwire_underruns_total", native] == 2
    assert seen["voxwire_underrun_seconds_sum", native] == 0.3
    assert seen["voxwire_audio_seconds_total", native] == 2.0
    assert seen["voxwire_contexts_total", (("dialect", "native"), ("outcome", "done"))] == 1


def test_times_that_were_never_reached_are_left_out() -> None:
    metrics = Metrics()
    metrics.context_opened("native")
    metrics.context_closed("native", "cancelled", ContextStats())
    assert not [name for name, _ in read(metrics) if name.startswith("voxwire_first_audio_seconds_count")]


@given(st.text(max_size=50), st.text(max_size=50), st.text(max_size=50))
def test_nothing_a_client_chose_becomes_a_label(dialect: str, outcome: str, reason: str) -> None:
    metrics = Metrics()
    metrics.context_opened(dialect)
    metrics.context_closed(dialect, outcome, ContextStats(audio_s=1.0, characters=1))
    metrics.refused(reason)
    allowed = {*DIALECTS, *OUTCOMES, *REASONS, "other"}
    labels = {value for _, pairs in read(metrics) for key, value in pairs if key != "le"}
    assert labels <= allowed


def test_engine_gauges_are_read_at_each_scrape() -> None:
    metrics = Metrics()
    values = iter([3.0, 4.0])
    metrics.watch_engine("xrt", lambda: next(values))
    assert read(metrics)["voxwire_engine_xrt", ()] == 3.0
    assert read(metrics)["voxwire_engine_xrt", ()] == 4.0


def test_what_else_an_engine_tells_is_read_at_each_scrape() -> None:
    metrics, events, gauges = Metrics(), {"truncated": 0}, {"codec_duty": 0.25}
    metrics.watch_engine_events(lambda: events)
    metrics.watch_engine_gauges(lambda: gauges)
    events["truncated"] = 3
    now = read(metrics)
    assert now["voxwire_engine_events_total", (("event", "truncated"),)] == 3
    assert now["voxwire_engine_codec_duty", ()] == 0.25


def test_two_gateways_do_not_share_figures() -> None:
    one, two = Metrics(), Metrics()
    one.refused("busy")
    assert ("voxwire_refusals_total", (("reason", "busy"),)) in read(one)
    assert ("voxwire_refusals_total", (("reason", "busy"),)) not in read(two)


def test_own_voices_are_counted_by_outcome_and_by_where_they_were_found() -> None:
    metrics = Metrics()
    metrics.watch_voices(lambda: {"hit": 7, "miss": 2})
    metrics.voices_made.labels("made").inc()
    metrics.voices_deleted.inc(3)
    metrics.refused("reference_noisy")
    metrics.refused("reference_" + "x" * 50)
    read = metrics.registry.get_sample_value
    assert read("voxwire_voice_cache_total", {"result": "hit"}) == 7
    assert read("voxwire_voice_cache_total", {"result": "miss"}) == 2
    assert read("voxwire_voice_enrolments_total", {"outcome": "made"}) == 1
    assert read("voxwire_voice_deletions_total") == 3
    assert read("voxwire_refusals_total", {"reason": "reference_noisy"}) == 1
    assert read("voxwire_refusals_total", {"reason": "other"}) == 1
