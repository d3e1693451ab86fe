// A client of the native protocol (see v1/stream/protocol.md): one session over one connection after another, and the
// turns spoken on it. After a drop it resumes: what was missed comes again, what was not taken is sent again.

import { decoder } from "./pcm.js";

const HEADER_BYTES = 20;
const SPEECH = 1;
const MESSAGE_CHARACTERS = 1000; // of text in one message: small, so that the first is soon read
const PENDING_CHARACTERS = 8000; // sent and not spoken yet: some minutes
const CONNECT_MS = 8000;
const PING_MS = 10_000;
const SILENCE_MS = 25_000; // nothing from the gateway for so long, though we pinged: the connection is dead
const BACKOFF_MS = [200, 500, 1000, 2000, 4000];

// One context. `on` has: opened, audio(Float32Array), words, flushed, done, cancelled, failed.
class Turn {
  constructor(gateway, id, options, on) {
    Object.assign(this, { gateway, id, options, on });
    this.begun = false; // the open was sent on the present session
    this.index = -1; // known once it was taken
    this.texts = []; // messages in order; seq is the place + 1
    this.waiting = ""; // text not sent yet
    this.sent = 0; // code points
    this.spoken = 0;
    this.samples = 0;
    this.bytes = 0;
    this.ending = false; // the caller said end
    this.endSent = false;
    this.cancelling = false;
    this.over = false;
    this.decode = decoder(options.format.encoding);
    this.width = { pcm_s16le: 2, pcm_f32le: 4 }[options.format.encoding] ?? 1;
  }

  text(text, { flush = false } = {}) {
    this.waiting += text;
    this.pump(flush);
  }

  end() {
    this.ending = true;
    this.pump();
  }

  // `heard`: the sample heard at this moment, so that the gateway's account of it is exact.
  cancel(heard) {
    if (this.cancelling) return;
    this.cancelling = true;
    this.gateway.send({ type: "played", context: this.id, sample: heard });
    this.gateway.send({ type: "cancel", context: this.id });
  }

  played(sample) {
    if (!this.cancelling) this.gateway.send({ type: "played", context: this.id, sample });
  }

  // Send what may be sent now.
  pump(flush = false) {
    if (this.over || this.cancelling) return;
    while (this.waiting && this.sent - this.spoken < PENDING_CHARACTERS) {
      let cut = Math.min(this.waiting.length, MESSAGE_CHARACTERS);
      const code = this.waiting.charCodeAt(cut - 1);
      if (cut < this.waiting.length && code >= 0xd800 && code < 0xdc00) cut += 1; // not between surrogates
      const text = this.waiting.slice(0, cut);
      this.waiting = this.waiting.slice(cut);
      for (const _ of text) this.sent += 1;
      const message = { type: "text", context: this.id, text, seq: this.texts.length + 1 };
      if (flush && !this.waiting) message.flush = true;
      this.texts.push(message);
      this.gateway.send(message);
    }
    if (this.ending && !this.waiting && !this.endSent) {
      this.endSent = true;
      this.gateway.send({ type: "end", context: this.id });
    }
  }

  // The caller has no more interest in it.
  close() {
    this.over = true;
    this.gateway.forget(this);
  }

  // After a resume: what the gateway has of this turn, undefined when it does not have the turn.
  again(kept) {
    if (this.cancelling) this.gateway.send({ type: "cancel", context: this.id });
    if (!kept || this.cancelling) return;
    for (const message of this.texts.slice(kept.texts)) this.gateway.send(message);
    if (this.endSent && !kept.ended) this.gateway.send({ type: "end", context: this.id });
  }

  audio(start, payload) {
    this.bytes += payload.byteLength + HEADER_BYTES;
    let samples = this.decode(payload);
    if (start > this.samples) this.on.audio(new Float32Array(start - this.samples)); // never seen: keeps the clock right
    if (start < this.samples) samples = samples.slice(this.samples - start);
    this.samples = Math.max(this.samples, start + payload.byteLength / this.width);
    if (samples.length) this.on.audio(samples);
  }
}

// Events: "status" (detail: {state: "connecting" | "ready" | "waiting" | "locked" | "closed", reason, retryMs}),
// "hello" and "notice" (detail: the message).
export class Gateway extends EventTarget {
  key = ""; // an API key, where the gateway wants one; kept in memory only
  hello = null;
  state = "closed";
  received = 0; // bytes
  keep = false; // whether there is more to take up after a drop than what is being spoken

  #socket = null;
  #session = null; // {session, key, received}
  #turns = new Map();
  #attempt = 0;
  #timer = 0;
  #heardAt = 0;
  #made = 0;
  #refused = null; // why a connection was turned down, from its first message

  constructor(base) {
    super();
    this.base = base;
    addEventListener("online", () => this.#now());
    document.addEventListener("visibilitychange", () => document.hidden || this.#now());
    setInterval(() => this.#watch(), PING_MS);
  }

  connect() {
    this.#attempt = 0;
    clearTimeout(this.#timer);
    this.#dial();
  }

  // A new context. Nothing is awaited: what is sent before the connection is ready goes when it is.
  open(options, on) {
    this.#made += 1;
    const turn = new Turn(this, `turn-${Date.now().toString(36)}-${this.#made}`, options, on);
    this.#turns.set(turn.id, turn);
    this.#begin(turn);
    this.#now();
    return turn;
  }

  #begin(turn) {
    turn.begun = this.state === "ready";
    this.send({ type: "open", context: turn.id, ...turn.options });
  }

  send(message) {
    if (this.state === "ready") this.#socket.send(JSON.stringify(message));
  }

  #status(state, more = {}) {
    this.state = state;
    this.dispatchEvent(new CustomEvent("status", { detail: { state, ...more } }));
  }

  forget(turn) {
    this.#turns.delete(turn.id);
  }

  #now() {
    if (this.state === "waiting") this.connect();
  }

  async #dial() {
    this.#status("connecting");
    let socket;
    try {
      const url = new URL("v1/stream", this.base);
      url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
      url.searchParams.set("token", await this.#token());
      socket = new WebSocket(url);
    } catch (error) {
      this.#lost(error);
      return;
    }
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    this.#refused = null;
    const late = setTimeout(() => socket.close(), CONNECT_MS);
    socket.onopen = () => {
      const hello = { type: "hello", version: 1, client: "voxwire page" };
      const begun = [...this.#turns.values()].some((turn) => turn.begun);
      if (this.#session && (begun || this.keep)) hello.resume = this.#session;
      socket.send(JSON.stringify(hello));
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      this.#heardAt = performance.now();
      this.received += data.byteLength ?? data.length;
      if (data instanceof ArrayBuffer) this.#binary(data);
      else this.#message(JSON.parse(data));
    };
    socket.onclose = ({ code }) => {
      clearTimeout(late);
      if (socket === this.#socket) this.#lost({ code: code === 1012 ? "draining" : undefined });
    };
  }

  // Browsers cannot put a key into the upgrade: it is exchanged for a token that works once, within a minute.
  async #token() {
    // With the names of the visitor's own voices, where the key may read them.
    let answer = await this.#mint(["speak", "voice:read"]);
    if (answer.status === 403) answer = await this.#mint(["speak"]);
    const body = await answer.json().catch(() => ({}));
    if (answer.ok) return body.token;
    throw Object.assign(new Error(body.error?.message ?? `the gateway answered ${answer.status}`), {
      locked: answer.status === 401 || answer.status === 403,
      code: body.error?.code,
      retry: body.error?.retry_after,
    });
  }

  #mint(scopes) {
    return fetch(new URL("v1/token", this.base), {
      method: "POST",
      headers: this.key ? { "X-API-Key": this.key } : {},
      credentials: "omit",
      body: JSON.stringify({ scopes }),
      signal: AbortSignal.timeout(CONNECT_MS),
    });
  }

  #lost(error = {}) {
    this.#socket = null;
    if (error.locked) {
      this.#drop({ code: "unauthorised", message: error.message });
      this.#status("locked", { reason: error.message });
      return;
    }
    if (this.#refused) {
      // There is nothing to take up: begin afresh, with the turns that never came to be.
      this.#session = null;
      this.#drop(this.#refused, (turn) => turn.index >= 0);
      for (const turn of this.#turns.values()) turn.begun = false;
    }
    const retryMs = Math.max(
      BACKOFF_MS[Math.min(this.#attempt, BACKOFF_MS.length - 1)] * (0.75 + Math.random() / 2),
      (error.retry ?? 0) * 1000,
    );
    this.#attempt += 1;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#dial(), retryMs);
    this.#status("waiting", { reason: error.code ?? "lost", retryMs, attempt: this.#attempt });
  }

  // These turns are over, for this reason.
  #drop(error, which = () => true) {
    for (const turn of [...this.#turns.values()].filter(which)) {
      this.#over(turn, turn.over ? () => {} : () => turn.on.failed(error));
    }
  }

  #over(turn, tell) {
    turn.over = true;
    this.#turns.delete(turn.id);
    tell();
  }

  #watch() {
    if (this.state !== "ready") return;
    if (performance.now() - this.#heardAt > SILENCE_MS) this.#socket.close();
    else this.send({ type: "ping" });
  }

  #binary(data) {
    const view = new DataView(data);
    if (view.byteLength < HEADER_BYTES || view.getUint8(0) !== SPEECH) return;
    if (this.#session) this.#session.received += 1;
    const index = view.getUint32(4, true);
    const start = Number(view.getBigUint64(12, true));
    for (const turn of this.#turns.values()) {
      if (turn.index === index && !turn.cancelling) turn.audio(start, data.slice(HEADER_BYTES));
    }
  }

  #message(message) {
    if (message.type === "hello") {
      this.#greeted(message);
      return;
    }
    if (this.state !== "ready") {
      if (message.type === "error") this.#refused = message;
      return;
    }
    this.#session.received += 1;
    if (message.type === "draining") this.dispatchEvent(new CustomEvent("notice", { detail: message }));
    const turn = this.#turns.get(message.context);
    if (!turn) {
      // Sent twice around a drop and over meanwhile: nobody listens to the second.
      if (message.type === "opened") this.send({ type: "cancel", context: message.context });
      return;
    }
    switch (message.type) {
      case "opened":
        turn.index = message.index;
        turn.on.opened?.(message);
        break;
      case "words":
        turn.spoken = Math.max(turn.spoken, ...message.words.map((word) => word.text_end));
        turn.on.words(message.words);
        turn.pump();
        break;
      case "flushed":
        turn.on.flushed?.(message);
        break;
      case "done":
        // It still plays, and a cancel is still answered, by "heard": kept until it is closed.
        turn.over = true;
        turn.on.done(message);
        break;
      case "cancelled":
      case "heard":
        this.#over(turn, () => turn.on.cancelled(message));
        break;
      case "error":
        if (message.terminal || turn.cancelling) this.#over(turn, () => turn.on.failed(message));
        else turn.on.warned?.(message);
        break;
    }
  }

  #greeted(hello) {
    const resumed = hello.resumed;
    this.hello = hello;
    this.#attempt = 0;
    if (!resumed) this.#session = { session: hello.session, key: hello.key, received: 0 };
    this.#status("ready", { resumed });
    this.dispatchEvent(new CustomEvent("hello", { detail: hello }));
    for (const turn of this.#turns.values()) {
      if (turn.over) {
        if (resumed) turn.again();
      } else if (resumed && (turn.index >= 0 || turn.id in hello.contexts)) {
        turn.again(hello.contexts[turn.id]);
      } else if (turn.cancelling) {
        this.#over(turn, () => turn.on.failed({ code: "cancelled", message: "stopped before it began" }));
      } else {
        // Asked for while there was no connection, or lost on the way.
        this.#begin(turn);
        for (const message of turn.texts) this.send(message);
        if (turn.endSent) this.send({ type: "end", context: turn.id });
      }
    }
  }
}
