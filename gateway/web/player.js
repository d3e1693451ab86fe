// Plays one stream of speech after another and knows what is heard now: the position behind the output's latency,
// not the one at which samples arrive or are rendered.

const FIRST_RESERVE_S = 0.08;
const LARGEST_RESERVE_S = 0.6;
const CALM_S = 5; // a stream that played this long without a gap lets the reserve shrink again
const PIECES = 400;

export class Player extends EventTarget {
  #context = null;
  #node = null; // null until the worklet is loaded
  #loading = null;
  #waiting = [];
  #pieces = []; // {frame, position, playing} in order: the stream's way through output time
  #last = 0; // the latest output time seen, which never goes back
  #reserve = FIRST_RESERVE_S;
  #stream = 0;
  #rate = 24000;
  #dryAt = null;
  #end = null;

  // Whether audio is owed: text was sent whose speech has not come. Running dry without that is no gap.
  due = () => true;
  pushed = 0;
  gaps = 0;
  gapSeconds = 0;
  audibleAt = null; // output frame of the first audible sample
  leadingSilence = null; // seconds of the stream before it

  get context() {
    return this.#context;
  }

  get reserve() {
    return this.#reserve;
  }

  get rate() {
    return this.#rate;
  }

  // Make the audio output, at `wanted` Hz where the browser can; call it from a gesture. Returns its real rate.
  prepare(wanted) {
    const context = this.#context;
    if (context && context.state !== "closed" && context.wanted === wanted) {
      if (context.state !== "running") context.resume().catch(() => {});
      return context.sampleRate;
    }
    context?.close().catch(() => {});
    this.#node = null;
    this.#waiting = [];
    this.#last = 0;
    let made;
    try {
      made = new AudioContext({ sampleRate: wanted, latencyHint: "interactive" });
    } catch {
      made = new AudioContext({ latencyHint: "interactive" });
    }
    made.wanted = wanted;
    made.onstatechange = () => this.dispatchEvent(new Event("output"));
    this.#context = made;
    if (navigator.audioSession) navigator.audioSession.type = "playback"; // else a phone's silent switch mutes us
    made.resume().catch(() => {});
    this.#loading = this.#load(made);
    return made.sampleRate;
  }

  async #load(context) {
    await context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
    if (context !== this.#context) return;
    const node = new AudioWorkletNode(context, "voxwire-player", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }) => this.#heardFrom(data);
    node.connect(context.destination);
    for (const [message, transfer] of this.#waiting) node.port.postMessage(message, transfer);
    this.#waiting = [];
    this.#node = node;
  }

  // Rejects when there is no sound output, or the browser does not let it start.
  async started(deadline = 4000) {
    const context = this.#context;
    await this.#loading;
    if (context.state === "running") return;
    await Promise.race([
      context.resume(),
      new Promise((_, fail) => setTimeout(() => fail(new Error("the sound output did not start")), deadline)),
    ]);
  }

  #tell(message, transfer = []) {
    if (this.#node) this.#node.port.postMessage(message, transfer);
    else this.#waiting.push([message, transfer]);
  }

  // Begin a stream at `rate` Hz; one that plays is faded out.
  open(rate) {
    this.#stream += 1;
    this.#rate = rate;
    this.#pieces = [];
    this.#dryAt = null;
    this.#end = null;
    this.pushed = 0;
    this.gaps = 0;
    this.gapSeconds = 0;
    this.audibleAt = null;
    this.leadingSilence = null;
    this.#tell({ type: "open", stream: this.#stream, rate, reserve: this.#reserve });
  }

  push(samples) {
    this.pushed += samples.length;
    this.#tell({ type: "push", stream: this.#stream, samples }, [samples.buffer]);
  }

  end() {
    this.#tell({ type: "end", stream: this.#stream });
  }

  // Stop at once; returns the sample that is heard at this moment.
  stop() {
    const position = this.position;
    this.#tell({ type: "stop" });
    this.#stream += 1; // whatever the worklet still says of the old one is late
    this.#end = null;
    this.#pieces = [{ frame: 0, position, playing: false }];
    return position;
  }

  #heardFrom({ event, stream, frame, position, lost }) {
    if (stream !== this.#stream) return;
    if (event === "go" || event === "dry" || event === "finished") {
      this.#pieces.push({ frame, position, playing: event === "go" });
      if (this.#pieces.length > PIECES) this.#pieces.shift();
    }
    if (event === "go" && this.#dryAt !== null) {
      this.gapSeconds += (frame - this.#dryAt) / this.#context.sampleRate;
      this.#dryAt = null;
    } else if (event === "dry" && this.due()) {
      this.gaps += 1;
      this.#dryAt = frame;
      this.#reserve = Math.min(LARGEST_RESERVE_S, this.#reserve * 1.7);
      this.#tell({ type: "reserve", stream, reserve: this.#reserve });
      this.dispatchEvent(new CustomEvent("gap", { detail: { seconds: position / this.#rate } }));
    } else if (event === "audible") {
      this.audibleAt = frame;
      this.leadingSilence = position / this.#rate;
      this.dispatchEvent(new Event("audible"));
    } else if (event === "finished") {
      this.#end = frame;
      if (!this.gaps && position / this.#rate >= CALM_S) {
        this.#reserve = Math.max(FIRST_RESERVE_S, this.#reserve * 0.9);
      }
    } else if (event === "overflow") {
      console.error(`voxwire: ${lost} samples did not fit into the player`);
    }
  }

  // The context time that leaves the loudspeaker now.
  get #now() {
    const context = this.#context;
    if (!context) return 0;
    const latency = context.outputLatency || context.baseLatency || 0;
    let now = context.currentTime - latency;
    const stamp = context.getOutputTimestamp?.();
    if (stamp?.performanceTime > 0 && context.state === "running") {
      const exact = stamp.contextTime + (performance.now() - stamp.performanceTime) / 1000;
      // Some devices give stamps from another time altogether: then the latency is the better guess.
      if (exact <= context.currentTime + 0.02 && exact > context.currentTime - 1) now = exact;
    }
    this.#last = Math.max(this.#last, now);
    return this.#last;
  }

  // The time on the page's clock (ms) at which an output frame is heard.
  heardAt(frame) {
    const time = frame / this.#context.sampleRate;
    return performance.now() + (time - this.#now) * 1000;
  }

  // The sample of the stream that is heard now.
  get position() {
    const context = this.#context;
    if (!context) return 0;
    const frame = this.#now * context.sampleRate;
    for (let i = this.#pieces.length - 1; i >= 0; i--) {
      const piece = this.#pieces[i];
      if (piece.frame > frame) continue;
      if (!piece.playing) return piece.position;
      const on = ((frame - piece.frame) * this.#rate) / context.sampleRate;
      const next = this.#pieces[i + 1];
      return Math.min(piece.position + on, next ? next.position : this.pushed);
    }
    return 0;
  }

  // Seconds that are here and not heard yet.
  get lead() {
    return Math.max(0, this.pushed - this.position) / this.#rate;
  }

  // Whether the last sample of an ended stream has left the loudspeaker.
  get finished() {
    return this.#end !== null && this.#now * this.#context.sampleRate >= this.#end;
  }

  // Nothing is played for a while: let the device sleep.
  rest() {
    if (this.#context?.state === "running") this.#context.suspend().catch(() => {});
  }
}
