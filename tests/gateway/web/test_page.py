"""The page as a user has it: in a real browser, against a real gateway."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sessions.principal import Principal
from tests.gateway.web.conftest import Serve, Served, Visit, Visitor
from tests.tone import ToneEngine
from tts_core.embedded import EmbeddedEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ARTIFACTS = Path(__file__).resolve().parents[3] / "artifacts"
TEXT = (
    "Good afternoon, this is Voxwire. Your order 00123 ships on Thursday at 2:30 PM, and it costs $48.15. "
    "Is there anything else?"
)
LONG = " ".join(f"This is sentence {n} of a rather long text." for n in range(1, 60))
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

WATCH = """() => {
  globalThis.seen = [];
  const look = () => {
    const { position, shown: [before, word] } = voxwire.diagnostics();
    const marked = document.querySelector(".marks mark:not([hidden])");
    if (word && marked) seen.push([position, word, before.length]);
    requestAnimationFrame(look);
  };
  look();
}"""
"""Notes at every frame: the position that is heard (s), the marked word, the characters before it."""


async def speak(visitor: Visitor, text: str) -> None:
    await visitor.page.fill("#text", text)
    await visitor.page.press("#text", "Control+Enter")


async def keep(visitor: Visitor, name: str) -> None:
    """A picture of the page, kept as a build artefact."""
    ARTIFACTS.mkdir(exist_ok=True)
    path = ARTIFACTS / f"{name}.png"
    await visitor.page.screenshot(path=path)
    assert path.stat().st_size > 10_000


async def painted(visitor: Visitor) -> int:
    """How many pixels of the waveform have been drawn on above and below its middle line."""
    return int(
        await visitor.page.evaluate(
            """() => {
              const canvas = document.getElementById("wave");
              const { width, height } = canvas;
              const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
              let count = 0;
              for (let y = 0; y < height; y++) {
                if (Math.abs(y - height / 2) < 4) continue;
                for (let x = 0; x < width; x++) count += data[4 * (y * width + x) + 3] > 0;
              }
              return count;
            }"""
        )
    )


def ordered(part: list[str], whole: list[str]) -> bool:
    """Whether ``part`` is ``whole`` with some left out."""
    rest = iter(whole)
    return all(item in rest for item in part)


@pytest.mark.slow
async def test_the_built_in_voice_is_heard_as_it_is_made(serve: Serve, visit: Visit) -> None:
    served = await serve(EmbeddedEngine())
    visitor = await visit(served.url, color_scheme="light", viewport={"width": 1100, "height": 860})
    assert await visitor.page.input_value("#text")  # something to try is there
    await visitor.page.evaluate(WATCH)
    await speak(visitor, TEXT)
    await visitor.until("now.state === 'speaking' && now.position > 2")
    await visitor.until("outputLevel() > 0.05", 2000)  # real sound goes out
    early = await visitor.see()
    await keep(visitor, "page-speaking")
    await visitor.until("now.state === 'idle'", 40_000)
    late = await visitor.see()
    (done,) = visitor.got("done")
    seconds = done["total_samples"] / 24000

    # It plays: time goes on, everything that was sent is heard, without a gap.
    assert late["contextTime"] - early["contextTime"] >= seconds - early["position"] - 0.2
    assert late["pushed"] == pytest.approx(seconds)
    assert late["position"] == pytest.approx(seconds, abs=0.05)
    assert late["gaps"] == 0

    # It was being made while it played, and came a little ahead only.
    assert early["pushed"] < seconds
    assert 0 < early["lead"] < 3.6

    # The words are marked in the order of the text, nearly all for long enough to be seen.
    marked = [word for _, word, _ in await visitor.page.evaluate("seen")]
    once = [word for i, word in enumerate(marked) if i == 0 or marked[i - 1] != word]
    assert ordered(once, TEXT.split())
    assert len(once) >= 0.8 * len(TEXT.split())

    figures = {
        name: await visitor.page.inner_text(f"#{name}")
        for name in ("first", "silence", "gaps", "lead", "engine", "reserve", "received")
    }
    assert re.fullmatch(r"\d+ ms|\d\.\d\d s", figures["first"])
    assert 0.01 < late["firstSound"] < 5
    assert re.fullmatch(r"\d+ ms", figures["silence"])
    assert late["leadingSilence"] == pytest.approx(done["stats"]["leading_silence"], abs=0.02)
    assert figures["gaps"] == "0"
    assert re.fullmatch(r"\d\.\d s", figures["lead"])
    assert float(figures["engine"]) == pytest.approx(done["stats"]["rtf"], abs=0.006)
    assert figures["reserve"] == "80 ms"
    assert re.fullmatch(r"\d+ kB", figures["received"])
    assert await painted(visitor) > 1000
    assert "Spoken in full" in await visitor.page.inner_text("#outcome")
    await keep(visitor, "page-spoken")


async def test_words_are_marked_when_they_are_heard_not_when_they_arrive(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await visitor.page.evaluate(WATCH)
    text = "Zoë’s naïve café 🎧 opened. " + LONG  # offsets count code points; one of these has two units
    await speak(visitor, text)
    await visitor.until("now.position > 3")
    seen = await visitor.page.evaluate("seen")
    words = [word for message in visitor.got("words") for word in message["words"]]
    starts = [word["start"] for word in words]
    units = [len(text[: word["text_start"]].encode("utf-16-le")) // 2 for word in words]
    assert len(seen) > 20
    for position, shown, before in seen:
        at = bisect_right(starts, position) - 1
        # The figure is read a moment after the mark was set.
        near = [i for i in (at - 1, at) if i >= 0 and (i == at or starts[at] > position - 0.15)]
        assert (shown, before) in [(words[i]["text"], units[i]) for i in near]
    state = await visitor.see()
    assert state["lead"] > 1  # much more has arrived than is marked


async def test_one_key_stops_at_once_and_tells_what_was_heard(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await speak(visitor, LONG)
    await visitor.until("now.position > 1.2")
    assert await visitor.page.evaluate("outputLevel()") > 0.1
    stopped = await visitor.page.evaluate(
        """() => {
          document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
          return voxwire.diagnostics();
        }"""
    )
    assert stopped["state"] == "idle"  # not a round trip later
    await visitor.until("outputLevel() === 0", 1000)
    await visitor.page.wait_for_selector("#account:not([hidden])")
    await visitor.until(f"voxwire.diagnostics().contextTime > {stopped['contextTime'] + 0.5}")
    after = await visitor.see()
    assert after["position"] == stopped["position"]
    assert after["pushed"] == stopped["pushed"]
    assert await visitor.page.evaluate("outputLevel()") == 0

    (cancelled,) = visitor.got("cancelled")
    heard = cancelled["heard"]
    assert heard["text"] + heard["unheard"] == LONG
    # The page's clock goes on in steps of 128 samples at 48 kHz while the key is looked at.
    assert heard["sample"] / 24000 == pytest.approx(stopped["position"], abs=2 * 128 / 48000)
    count = len(heard["text"].split())
    assert 2 <= count <= 6
    assert await visitor.page.inner_text("#heard") == heard["text"].strip()
    assert (await visitor.page.inner_text("#unheard")).startswith(" ".join(heard["unheard"].split()[:8]))
    assert f"{count} of {len(LONG.split())} words" in await visitor.page.inner_text("#outcome-text")
    shown = "[...CSS.highlights.get('unheard')].join('')"
    assert await visitor.page.evaluate(shown) == heard["unheard"]
    assert visitor.binary_after_end == 0
    assert served.services.in_flight.count == 0

    # And it can speak again.
    await speak(visitor, "Once more.")
    await visitor.until("now.state === 'idle' && now.position > 0.4")
    assert len(visitor.got("done")) == 1


async def test_stopping_what_only_plays_still_is_answered_too(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    text = "All of this arrives before it is heard."
    await speak(visitor, text)
    await visitor.until("now.position > 0.4 && now.rtf !== undefined")
    assert visitor.got("done")
    await visitor.page.keyboard.press("Escape")
    await visitor.page.wait_for_selector("#account:not([hidden])")
    (answer,) = visitor.got("heard")
    assert answer["heard"]["text"] + answer["heard"]["unheard"] == text
    assert await visitor.page.inner_text("#heard") == answer["heard"]["text"].strip()


async def test_speaking_anew_replaces_what_plays(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await speak(visitor, LONG)
    await visitor.until("now.position > 0.5")
    await visitor.page.click("#speak")
    await visitor.page.wait_for_selector("#account:not([hidden])")
    await visitor.page.click("#speak")
    await visitor.until("now.position > 0.5")
    before = await visitor.see()
    await visitor.page.press("body", "Control+Enter")
    fixed = before["contextTime"] - before["position"]  # until the position begins anew
    await visitor.until(f"now.position > 0.1 && now.contextTime - now.position > {fixed + 0.3}")
    assert len(visitor.got("cancelled")) == 2
    assert len(visitor.said("open")) == 3
    assert served.services.in_flight.count == 1


async def test_markup_in_the_text_stays_text(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    text = 'Hello <img src=x onerror="globalThis.harm = 1"> <script>globalThis.harm = 1</script> there ' * 20
    await speak(visitor, text)
    await visitor.until("now.position > 0.4")
    await visitor.page.keyboard.press("Escape")
    await visitor.page.wait_for_selector("#account:not([hidden])")
    assert await visitor.page.evaluate("globalThis.harm") is None
    assert await visitor.page.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
    shown = await visitor.page.evaluate("document.querySelector('#back').textContent")
    assert shown == text + "\u200b"


async def test_the_policy_lets_no_page_reach_elsewhere(serve: Serve, visit: Visit) -> None:
    served, other = await serve(), await serve()
    visitor = await visit(served.url)
    refused = await visitor.page.evaluate(
        """async (url) => {
          const violated = new Promise((done) =>
            addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective)));
          await fetch(url).catch(() => {});
          return violated;
        }""",
        other.url + "healthz",
    )
    assert refused == "connect-src"
    visitor.faults.clear()  # the console said so, as it should


async def test_a_page_of_a_foreign_origin_cannot_connect(serve: Serve, visit: Visit) -> None:
    served = await serve()
    app = web.Application()

    async def evil(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>elsewhere</title>", content_type="text/html")

    app.router.add_get("/", evil)
    made = web.AppRunner(app)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(made.cleanup)
        await made.setup()
        await web.TCPSite(made, "127.0.0.1", 0).start()
        visitor = await visit(f"http://127.0.0.1:{made.addresses[0][1]}/", ready=False)
        token = served.services.tokens.mint(_local(served), origin=served.url.rstrip("/"))
        tried = await visitor.page.evaluate(
            """async ([url, token]) => {
              const socket = (query) => new Promise((done) => {
                const made = new WebSocket(url.replace("http", "ws") + "v1/stream" + query);
                made.onopen = () => done("open");
                made.onclose = () => done("refused");
              });
              const ask = (path, options) => fetch(url + path, options).then(() => "read", () => "refused");
              return [
                await socket(""), await socket("?api_key=anything"), await socket(`?token=${token}`),
                await ask("v1/token", { method: "POST" }), await ask("v1/voices"),
                await ask("v1/token", { method: "POST", headers: { "X-API-Key": "anything" } }),
                await new Promise((done) => {
                  const frame = document.createElement("iframe");
                  frame.src = url;
                  frame.onload = () => {
                    try { done(frame.contentDocument ? "read" : "refused"); } catch { done("refused"); }
                  };
                  document.body.append(frame);
                }),
              ];
            }""",
            [served.url, token],
        )
    assert tried == ["refused"] * 7
    visitor.faults.clear()  # the console names the policy that kept the frame empty
    assert not served.services.native_sessions
    assert not served.services.sockets


def _local(served: Served) -> Principal:
    """Who the page of this machine is."""
    key = (served.services.settings.data_dir / "local.key").read_text().strip()
    return served.services.keyring.authenticate(key, loopback=True)


async def test_gaps_are_counted_and_the_reserve_grows_for_the_next_time(serve: Serve, visit: Visit) -> None:
    served = await serve(ToneEngine(word_s=0.1, work_s=0.2))  # half as fast as it should be
    visitor = await visit(served.url)
    await speak(visitor, "One two. Three four five six seven. Eight nine ten eleven twelve.")
    await visitor.until("now.state === 'idle' && now.position > 1", 15_000)
    state = await visitor.see()
    (done,) = visitor.got("done")
    assert state["pushed"] == done["total_samples"] / 24000
    assert 1 <= state["gaps"] <= 3
    assert 0.3 < state["gapSeconds"] < 5
    assert state["reserve"] > 0.1
    assert await visitor.page.inner_text("#gaps") == str(state["gaps"])
    assert "of waiting in all" in await visitor.page.inner_text("#gaps-note")
    await speak(visitor, "Again.")
    await visitor.until("now.state === 'idle' && now.position > 0.05")
    assert (await visitor.see())["reserve"] == state["reserve"]
    assert (await visitor.see())["gaps"] == 0


async def test_after_a_drop_it_goes_on_where_it_was(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    text = " ".join(LONG.split()[:20])
    await speak(visitor, text)
    await visitor.until("now.position > 1")
    for socket in list(served.services.sockets):
        socket.abort()
    await visitor.until("now.connection !== 'ready'")
    await visitor.until("now.connection === 'ready'")
    await visitor.until("now.state === 'idle'", 30_000)
    state = await visitor.see()
    (done,) = visitor.got("done")
    assert visitor.got("hello")[-1]["resumed"] is True
    assert state["pushed"] == done["total_samples"] / 24000
    assert state["position"] == pytest.approx(state["pushed"], abs=0.05)
    assert "Spoken in full" in await visitor.page.inner_text("#outcome")
    assert len(visitor.said("open")) == 1


async def test_a_session_that_cannot_be_taken_up_says_so_and_the_next_try_works(
    serve: Serve, visit: Visit
) -> None:
    served = await serve(resume_s=0.0)
    visitor = await visit(served.url)
    await speak(visitor, LONG)
    await visitor.until("now.position > 0.5")
    for socket in list(served.services.sockets):
        socket.abort()
    await visitor.page.wait_for_selector("#banner:not([hidden])")
    assert "away for too long" in await visitor.page.inner_text("#banner-text")
    await visitor.until("now.state === 'idle' && now.connection === 'ready'")
    await visitor.page.click("#retry")
    await visitor.until("now.position > 0.3")
    assert await visitor.page.is_hidden("#banner")


async def test_what_is_asked_for_without_a_connection_is_spoken_when_it_is_back(
    serve: Serve, visit: Visit
) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await visitor.page.context.set_offline(True)
    for socket in list(served.services.sockets):
        socket.abort()
    await visitor.until("now.connection === 'waiting'")
    assert await visitor.page.inner_text("#status-text") == "Reconnecting"
    await speak(visitor, "Here again.")
    await visitor.until("now.state === 'starting'")
    await visitor.page.context.set_offline(False)
    await visitor.until("now.state === 'idle' && now.position > 0.4", 15_000)
    assert len(visitor.got("done")) == 1


async def test_a_full_gateway_is_said_with_the_time_to_try_again(serve: Serve, visit: Visit) -> None:
    served = await serve(max_contexts=1)
    first = await visit(served.url)
    await speak(first, LONG)
    await first.until("now.position > 0.2")
    second = await visit(served.url)
    await speak(second, "Me too.")
    await second.page.wait_for_selector("#banner:not([hidden])")
    assert "full right now" in await second.page.inner_text("#banner-text")
    assert re.fullmatch(r"Try again( in \d+ s)?", await second.page.inner_text("#retry"))
    assert (await second.see())["state"] == "idle"
    await first.page.keyboard.press("Escape")
    await second.page.click("#retry")  # waits until it may be pressed
    await second.until("now.state === 'idle' && now.position > 0.4")


async def test_a_text_that_is_too_long_is_refused_with_the_limit(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await visitor.page.evaluate("document.getElementById('text').value = 'word '.repeat(41_000)")
    await visitor.page.press("#text", "Control+Enter")
    await visitor.page.wait_for_selector("#banner:not([hidden])")
    assert re.search(r"At most [\d,]+ characters", await visitor.page.inner_text("#banner-text"))
    assert await visitor.page.is_hidden("#retry")
    assert visitor.said("open") == []


async def test_a_long_text_is_sent_piece_by_piece(serve: Serve, visit: Visit) -> None:
    served = await serve(ToneEngine(word_s=0.02))
    visitor = await visit(served.url)
    text = "A word or two 🎈. " * 2900
    await visitor.page.evaluate("(text) => { document.getElementById('text').value = text; }", text)
    await visitor.page.press("#text", "Control+Enter")
    await visitor.until("now.position > 0.5")
    sent = "".join(message["text"] for message in visitor.said("text"))
    assert text.startswith(sent)
    assert 8000 <= len(sent) < 20_000
    assert max(len(message["text"]) for message in visitor.said("text")) <= 1001
    assert visitor.got("error") == []


async def test_a_restart_is_announced(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await speak(visitor, LONG)
    await visitor.until("now.position > 0.3")
    served.services.draining.set()
    await visitor.until("document.getElementById('status-text').textContent === 'Restarting'")
    await visitor.page.keyboard.press("Escape")
    await visitor.until("now.connection !== 'ready'")
    assert await visitor.page.inner_text("#status-text") == "Restarting"


async def test_a_gateway_with_keys_asks_for_one(serve: Serve, visit: Visit) -> None:
    key = "correct-horse-battery-staple"
    served = await serve(api_keys=f"page:{key}")
    visitor = await visit(served.url, ready=False)
    await visitor.page.wait_for_selector("#lock:not([hidden])")
    await visitor.page.fill("#key", "wrong-horse-battery-staple")
    await visitor.page.press("#key", "Enter")
    await visitor.until("!/kept in this tab/.test(document.getElementById('lock-note').textContent)")
    assert await visitor.page.inner_text("#lock-note") == "The API key is missing, wrong or revoked."
    await visitor.page.fill("#key", key)
    await visitor.page.click("#lock button")
    await visitor.until("now.connection === 'ready'")
    assert await visitor.page.is_hidden("#lock")
    await speak(visitor, "Open.")
    await visitor.until("now.state === 'idle' && now.position > 0.2")
    stored: Any = await visitor.page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }])")
    assert key not in stored


async def test_a_text_is_spoken_while_it_is_typed(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await visitor.page.fill("#text", "")
    await visitor.page.check("#live")
    await visitor.page.keyboard.type("Hello there, dear friend. How are ", delay=25)
    await visitor.until("now.position > 0.2")
    assert not visitor.said("end")
    await visitor.page.keyboard.type("you today", delay=25)
    await visitor.until("now.lead < 0.05 && now.pushed > 2")  # the last word came after a pause
    texts = [message["text"] for message in visitor.said("text")]
    assert "".join(texts) == "Hello there, dear friend. How are you today"
    assert len(texts) > 3
    assert (await visitor.see())["gaps"] == 0  # nobody waited but for the typist

    # A change of what was sent is spoken from the changed word on.
    for _ in "you today":
        await visitor.page.keyboard.press("Backspace")
    await visitor.page.keyboard.type("they now? ", delay=25)
    await visitor.until("now.pushed > 0.3 && now.lead < 0.05")
    contexts = [message["context"] for message in visitor.said("open")]
    last = [message["text"] for message in visitor.said("text") if message["context"] == contexts[-1]]
    assert "".join(last).strip() == "they now?"
    await visitor.page.keyboard.press("Escape")
    await visitor.page.wait_for_selector("#outcome:not([hidden])")
    assert (await visitor.see())["state"] == "idle"


async def test_a_phone_line_sounds_like_one(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url, **PHONE, color_scheme="dark")
    await visitor.page.select_option("#sound", "phone")
    await visitor.page.fill("#text", LONG)
    await visitor.page.tap("#speak")
    await visitor.until("now.position > 1")
    assert (await visitor.see())["contextRate"] == 8000
    assert visitor.got("opened")[0]["format"] == {"encoding": "mulaw", "sample_rate": 8000}
    assert await visitor.page.evaluate("outputLevel()") > 0.1
    await keep(visitor, "page-phone")
    # The one control is in reach, nothing is wider than the screen.
    box = await visitor.page.locator("#speak").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 844
    assert await visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
    await visitor.page.tap("#speak")
    await visitor.page.wait_for_selector("#account:not([hidden])")


async def test_everything_has_a_name_and_the_keyboard_reaches_it(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    page = visitor.page
    for role, name in (
        ("textbox", "Text to speak"),
        ("combobox", "Voice"),
        ("combobox", "Sound"),
        ("slider", "Speed"),
        ("switch", "Speak as I type"),
        ("img", "Waveform of the speech"),
    ):
        assert await page.get_by_role(role, name=name).count() == 1, name  # type: ignore[arg-type]
    assert await page.get_by_role("button", name=re.compile("^Speak")).count() == 1
    await page.focus("#text")
    reached = []
    for _ in range(6):
        await page.keyboard.press("Tab")
        reached.append(await page.evaluate("document.activeElement.id"))
    assert reached[:5] == ["speak", "voice", "sound", "speed", "live"]
    options = await page.locator("#voice option").all_inner_texts()
    assert [unicodedata.normalize("NFC", option) for option in options] == [
        "Default voice",
        "Tone, American English",
        "Second, American English",
    ]
    await page.select_option("#voice", "second")
    await page.focus("#speed")
    await page.keyboard.press("ArrowRight")
    assert await page.inner_text("#speed-text") == "1.05×"
    await speak(visitor, "Faster.")
    await visitor.until("now.state === 'idle' && now.position > 0.1")
    (opened,) = visitor.said("open")
    assert (opened["voice"], opened["speed"]) == ("second", 1.05)
    await page.reload()
    await visitor.until("now.connection === 'ready'")
    assert await page.input_value("#voice") == "second"
    assert await page.input_value("#speed") == "1.05"
