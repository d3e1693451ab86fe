// The page: text in, speech out. Wires the parts together and shows what they say.

import { explain } from "./errors.js";
import { Figures } from "./figures.js";
import { OwnVoices } from "./own.js";
import { formatFor } from "./pcm.js";
import { Player } from "./player.js";
import { Reading } from "./reading.js";
import { Gateway } from "./stream.js";
import { Typing } from "./typing.js";
import { Wave } from "./wave.js";

const PLAYED_MS = 250;
const WORD_MS = 1200; // a pause while typing after which the unfinished word is spoken too
const ANSWER_MS = 1500; // how long an account of what was heard may take before we give our own
const REST_MS = 20_000;
const RATES = [8000, 16000, 22050, 24000, 44100, 48000];
const SAMPLE =
  "Good afternoon, and thank you for calling. Your order 00123 ships on Thursday at 2:30 PM, and the total comes to " +
  "$48.15. You will hear these words as they are being made. Is there anything else I can help you with?";

const $ = (id) => document.getElementById(id);
const area = $("text");
const player = new Player();
const gateway = new Gateway(document.baseURI);
const reading = new Reading($("back"), area);
const wave = new Wave($("wave"));
const typing = new Typing();
const figures = new Figures(player);

let state = "idle"; // starting (nothing heard yet), speaking, idle
let turn = null;
let pressed = 0; // when the user asked for this turn, on the page's clock
let flushes = 0; // asked for and not answered
let failed = null; // why the turn that still plays will not be complete
let drawing = 0;
let restTimer = 0;
let wordTimer = 0;
let answerTimer = 0;
let retryTimer = 0;

const live = () => $("live").checked;

// -- speaking ------------------------------------------------------------------------------------------------------

function wantedRate() {
  if ($("sound").value === "phone") return 8000;
  const native = gateway.hello?.native_rate;
  return RATES.includes(native) ? native : 24000;
}

function begin(text, base, at) {
  clearTimeout(restTimer);
  clearTimeout(answerTimer);
  turn?.close();
  hush();
  const output = player.prepare(wantedRate());
  const offered = gateway.hello?.sample_rates ?? RATES;
  const phone = $("sound").value === "phone";
  const format = phone ? { encoding: "mulaw", sample_rate: 8000 } : formatFor(output, offered);
  pressed = at > 0 && at <= performance.now() ? at : performance.now();
  failed = null;
  flushes = 0;
  player.open(format.sample_rate);
  wave.begin(format.sample_rate);
  figures.begin(live());
  reading.begin(base);
  reading.follow(text);
  $("outcome").hidden = true;
  const options = { format, speed: Number($("speed").value), interrupt: true };
  if ($("voice").value) options.voice = $("voice").value;
  if (live()) options.max_buffer_delay_ms = WORD_MS;
  const made = gateway.open(options, handlers(() => made === turn));
  turn = made;
  become("starting");
  player.started().catch((error) => made === turn && soundFailed(error));
  return made;
}

function handlers(mine) {
  const only =
    (act) =>
    (...given) =>
      mine() && act(...given);
  return {
    audio: only((samples) => {
      wave.push(samples);
      player.push(samples);
    }),
    words: only((words) => reading.add(words)),
    flushed: only(() => (flushes -= 1)),
    done: only(({ stats }) => {
      figures.stats(stats);
      player.end();
    }),
    cancelled: only(({ heard, stats }) => {
      if (stats) figures.stats(stats);
      account(heard.text, heard.unheard);
    }),
    failed: only(broke),
    warned: only((error) => complain(error)),
  };
}

function speak(event) {
  const text = area.value.toWellFormed?.() ?? area.value;
  if (!text.trim()) {
    announce("There is nothing to say yet");
    area.focus();
    return;
  }
  if (gateway.state === "locked") {
    $("key").focus();
    return;
  }
  const limit = gateway.hello?.limits.max_context_characters ?? 200_000;
  if (text.length > limit && [...text].length > limit) {
    complain({ code: "text_too_long", message: `At most ${limit.toLocaleString()} characters can be spoken at once.` });
    return;
  }
  begin(text, 0, event.timeStamp);
  if (live()) {
    typing.begin("");
    typed(true);
  } else {
    turn.text(text);
    turn.end();
  }
}

// At once: the sound fades within 10 ms, whatever the network does.
function stop() {
  if (state === "idle") return;
  const sample = Math.round(player.stop());
  const stopped = turn;
  wave.cut(sample);
  become("idle");
  typing.begin(area.value);
  stopped.cancel(sample);
  const own = () => stopped === turn && account(...reading.split(sample / player.rate));
  reading.rest(reading.split(sample / player.rate)[0].length);
  answerTimer = setTimeout(own, gateway.state === "ready" ? ANSWER_MS : 0);
}

function account(heard, unheard) {
  clearTimeout(answerTimer);
  const words = (text) => text.match(/\S+/g)?.length ?? 0;
  const all = words(heard + unheard);
  $("outcome-text").textContent = `Stopped. ${words(heard)} of ${all} words were heard.`;
  $("heard").textContent = clip(heard, true) || "nothing";
  $("unheard").textContent = clip(unheard, false) || "nothing";
  $("account").hidden = false;
  $("outcome").hidden = false;
  reading.rest(heard.length);
  turn?.close();
  turn = null;
}

function clip(text, end) {
  const plain = text.replace(/\s+/g, " ").trim();
  const most = 160;
  if (plain.length <= most) return plain;
  return end ? `… ${plain.slice(-most).replace(/^\S*\s/, "")}` : `${plain.slice(0, most).replace(/\s\S*$/, "")} …`;
}

function finished() {
  figures.show(turn, true);
  player.stop();
  become("idle");
  typing.begin(area.value);
  turn?.close();
  turn = null;
  if (failed) return;
  reading.rest();
  $("account").hidden = true;
  $("outcome-text").textContent = `Spoken in full, ${figures.length} of audio.`;
  $("outcome").hidden = false;
}

// The gateway gave the turn up: what is here is played, then it is over.
function broke(error) {
  if (live() && error.code === "context_idle") {
    finished();
    $("outcome").hidden = true;
    return;
  }
  complain(error);
  if (player.pushed) {
    failed = error;
    player.end();
    return;
  }
  player.stop();
  become("idle");
  typing.begin(area.value);
  reading.plain();
  turn?.close();
  turn = null;
}

function soundFailed() {
  if (state === "idle") return;
  stop();
  complain({ code: "no_sound" });
}

// -- while typing --------------------------------------------------------------------------------------------------

function typed(all, at = performance.now()) {
  clearTimeout(wordTimer);
  const { restart, text } = typing.take(area.value, all);
  if (restart || (text.trim() && state === "idle")) {
    if (!text.trim()) {
      if (restart) stop();
      return;
    }
    begin(typing.sent, typing.base, at);
  }
  if (text && turn) {
    reading.follow(typing.sent);
    if (all) flushes += 1;
    turn.text(text, { flush: all });
  }
  if (!all) wordTimer = setTimeout(() => live() && typed(true), WORD_MS);
}

player.due = () =>
  !live() || flushes > 0 || turn?.endSent === true || reading.until * player.rate > player.pushed + 1;

// -- showing -------------------------------------------------------------------------------------------------------

function become(next) {
  state = next;
  document.body.dataset.state = next;
  const busy = next !== "idle";
  area.readOnly = busy && !live();
  $("speak-text").textContent = busy ? "Stop" : "Speak";
  $("speak-key").textContent = busy ? "Esc" : shortcut;
  if (busy) draw();
  else restTimer = setTimeout(() => state === "idle" && player.rest(), REST_MS);
}

function tick() {
  if (state === "idle") return;
  const { position } = player;
  if (state === "starting" && position > 0) become("speaking");
  reading.at(position / player.rate);
  figures.show(turn);
  if (player.finished) finished();
}

function draw() {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(() => {
    tick();
    const active = state !== "idle";
    if (wave.draw(player.position, active) || active) draw();
  });
}

// Also for a hidden page, which gets no animation frames.
setInterval(() => {
  if (state === "idle") return;
  if (document.hidden) tick();
  if (turn && player.pushed) turn.played(Math.round(player.position));
}, PLAYED_MS);

function announce(text) {
  $("announce").textContent = text;
}

function complain(error) {
  const { text, retry } = explain(error);
  if (!text) return;
  clearInterval(retryTimer);
  $("banner-text").textContent = text;
  $("banner").hidden = false;
  $("retry").hidden = !retry;
  let left = Math.ceil(error.retry_after ?? 0);
  const count = () => {
    $("retry").disabled = left > 0;
    $("retry").textContent = left > 0 ? `Try again in ${left} s` : "Try again";
    if (left <= 0) clearInterval(retryTimer);
    left -= 1;
  };
  if (retry) {
    count();
    retryTimer = setInterval(count, 1000);
  }
}

function hush() {
  clearInterval(retryTimer);
  $("banner").hidden = true;
}

// -- the connection ------------------------------------------------------------------------------------------------

let restarting = false;

gateway.addEventListener("status", ({ detail }) => {
  const { state: now, reason, attempt } = detail;
  const words = {
    connecting: gateway.hello ? "Reconnecting" : "Connecting",
    ready: "Ready",
    waiting: restarting || reason === "draining" ? "Restarting" : attempt > 2 ? "Not reachable" : "Reconnecting",
    locked: "Key needed",
  };
  if (now === "ready") restarting = false;
  if (now === "connecting" && $("status").dataset.state === "waiting") return; // no flicker between tries
  $("status").dataset.state = now;
  $("status-text").textContent = words[now];
  $("lock").hidden = now !== "locked";
  if (now === "locked") {
    const note = gateway.key ? explain({ message: reason }).text : "It is kept in this tab only, until you close it.";
    $("lock-note").textContent = note;
    $("key").focus();
  }
});

gateway.addEventListener("hello", ({ detail: hello }) => {
  const voice = $("voice");
  const kept = voice.value || preferred.voice;
  const language = (tag) => {
    try {
      return new Intl.DisplayNames("en", { type: "language" }).of(tag);
    } catch {
      return tag;
    }
  };
  const options = hello.voices.map(
    ({ id, name, language: tag }) => new Option([name || id, tag && language(tag)].filter(Boolean).join(", "), id),
  );
  voice.replaceChildren(new Option("Default voice", ""), ...options);
  if (hello.voices.some((each) => each.id === kept)) voice.value = kept;
  $("about").textContent = `${hello.engine} engine, ${hello.native_rate / 1000} kHz`;
});

const own = new OwnVoices(gateway);
own.addEventListener("made", ({ detail }) => {
  $("voice").append(new Option(detail.name, detail.id));
});
own.addEventListener("gone", ({ detail }) => {
  for (const option of [...$("voice").options]) if (option.value === detail) option.remove();
});
own.addEventListener("try", ({ detail }) => {
  $("voice").value = detail;
  if (state !== "idle") stop();
  speak(new Event("try"));
});

gateway.addEventListener("notice", () => {
  restarting = true;
  $("status").dataset.state = "waiting";
  $("status-text").textContent = "Restarting";
});

// -- the user ------------------------------------------------------------------------------------------------------

const apple = /Mac|iPhone|iPad/.test(navigator.platform);
const shortcut = apple ? "⌘ ↵" : "Ctrl ↵";
if (apple) $("hint").textContent = "Press Speak, or Command and Enter. Esc stops at once.";
$("speak-key").textContent = shortcut;

$("speak").addEventListener("click", (event) => (state === "idle" ? speak(event) : stop()));
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key === "Escape" && state !== "idle") {
      event.preventDefault();
      stop();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.repeat) {
      event.preventDefault();
      speak(event);
    }
  },
  { capture: true },
);
area.addEventListener("input", (event) => {
  if (live()) typed(false, event.timeStamp);
  if (state === "idle") {
    reading.plain();
    $("outcome").hidden = true;
  }
});
$("live").addEventListener("change", () => {
  if (!live() && state !== "idle") {
    typed(true);
    turn?.end();
  }
  typing.begin(area.value);
  area.readOnly = state !== "idle" && !live();
  $("hint").textContent = live() ? "Spoken while you type, phrase by phrase. Esc stops at once." : hintText;
  if (live()) area.focus();
});
const hintText = $("hint").textContent;
$("retry").addEventListener("click", speak);
$("dismiss").addEventListener("click", hush);
$("lock").addEventListener("submit", (event) => {
  event.preventDefault();
  gateway.key = $("key").value.trim();
  gateway.connect();
});
for (const gesture of ["pointerdown", "keydown"]) {
  // The sound output is ready by the time Speak is pressed.
  addEventListener(gesture, () => player.prepare(wantedRate()), { once: true, capture: true });
}
player.addEventListener("gap", ({ detail }) => wave.gap(detail.seconds));
player.addEventListener("audible", () => figures.first(player.heardAt(player.audibleAt) - pressed));
player.addEventListener("output", () => {
  if (player.context.state === "interrupted" && state !== "idle") complain({ code: "interrupted" });
});
wave.onchange = draw;

// Choices are kept, the text is not.
const STORE = "voxwire";
let preferred = {};
try {
  preferred = JSON.parse(localStorage.getItem(STORE)) ?? {};
} catch {
  // Storage is off: nothing is remembered.
}
if (Number(preferred.speed) >= 0.5 && Number(preferred.speed) <= 2) $("speed").value = preferred.speed;
if (preferred.sound === "phone") $("sound").value = "phone";
function showSpeed() {
  const text = `${Number($("speed").value).toFixed(2)}×`;
  $("speed-text").textContent = text;
  $("speed").setAttribute("aria-valuetext", text);
}
function chosen() {
  showSpeed();
  preferred = { voice: $("voice").value, speed: $("speed").value, sound: $("sound").value };
  try {
    localStorage.setItem(STORE, JSON.stringify(preferred));
  } catch {
    // As above.
  }
}
for (const id of ["voice", "speed", "sound"]) $(id).addEventListener("input", chosen);
showSpeed();

if (!area.value) area.value = SAMPLE;
reading.plain();
draw();
gateway.connect();

// For the console and the tests.
globalThis.voxwire = Object.freeze({
  diagnostics: () => ({
    state,
    connection: gateway.state,
    contextTime: player.context?.currentTime ?? 0,
    contextRate: player.context?.sampleRate ?? 0,
    position: player.position / player.rate,
    pushed: player.pushed / player.rate,
    lead: player.lead,
    gaps: player.gaps,
    gapSeconds: player.gapSeconds,
    reserve: player.reserve,
    buckets: wave.buckets,
    shown: reading.shown,
    ...figures.values,
  }),
});
