// The part of the player that runs on the audio thread: a ring of samples, read at the device's pace.
//
// It decides nothing about speech. It fills up to a reserve before it plays, fades where it must stop, and tells the
// page at which output frame it went, ran dry, became audible and finished; the page makes positions of that.
//
// In:  {type: "open", stream, rate, reserve}  a new stream; what was there is faded out. reserve in seconds.
//      {type: "push", stream, samples}        Float32Array at the stream's rate
//      {type: "reserve", stream, reserve}     another reserve, from the next filling on
//      {type: "end", stream}                  no more comes: play to the last sample
//      {type: "stop"}                         fade out and drop everything
// Out: {event, stream, frame, position}       event is go, dry, audible, finished, stopped or level (20 a second);
//                                             frame counts output frames, position samples of the stream
//      {event: "overflow", stream, lost}

const CAPACITY = 1 << 20; // samples, 43 s at 24 kHz; the gateway sends 3 s ahead
const MASK = CAPACITY - 1;
const AUDIBLE = 10 ** (-50 / 20); // the level at which the gateway's own figures take silence to end
const FADE_S = 0.01;
const LEVEL_S = 0.05;

class Stream {
  constructor(id, rate, reserve) {
    this.id = id;
    this.rate = rate;
    this.step = rate / sampleRate; // samples per output frame
    this.reserve = reserve * rate;
    this.written = 0;
    this.read = 0;
    this.ended = false;
    this.playing = false;
    this.finished = false;
    this.audible = false;
    this.resumes = false; // it ran dry before: fade in
    this.waited = 0; // frames spent with something, but less than the reserve
  }

  get left() {
    return this.written - this.read;
  }
}

class VoxwirePlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Float32Array(CAPACITY);
    this.stream = null;
    this.tail = new Float32Array(0); // fading rest of a stream that was stopped
    this.tailAt = 0;
    this.levelAt = 0;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  take(message) {
    if (message.type === "open") {
      this.stop();
      this.stream = new Stream(message.stream, message.rate, message.reserve);
      return;
    }
    if (message.type === "stop") {
      this.stop();
      return;
    }
    const stream = this.stream;
    if (!stream || stream.id !== message.stream) return; // of a stream that was stopped meanwhile
    if (message.type === "push") this.push(stream, message.samples);
    else if (message.type === "reserve") stream.reserve = message.reserve * stream.rate;
    else if (message.type === "end") stream.ended = true;
  }

  push(stream, samples) {
    if (stream.left + samples.length > CAPACITY - 4) {
      this.port.postMessage({ event: "overflow", stream: stream.id, lost: samples.length });
      return;
    }
    const at = stream.written & MASK;
    const first = Math.min(samples.length, CAPACITY - at);
    this.ring.set(samples.subarray(0, first), at);
    this.ring.set(samples.subarray(first), 0);
    stream.written += samples.length;
  }

  stop() {
    const stream = this.stream;
    this.stream = null;
    if (!stream) return;
    this.tell("stopped", stream, currentFrame);
    if (!stream.playing) return;
    const frames = Math.min(Math.round(FADE_S * sampleRate), Math.floor(stream.left / stream.step));
    this.tail = new Float32Array(frames);
    this.tailAt = 0;
    for (let i = 0; i < frames; i++) this.tail[i] = this.next(stream) * (1 - (i + 1) / frames);
  }

  tell(event, stream, frame) {
    this.port.postMessage({ event, stream: stream.id, frame, position: stream.read });
  }

  // The sample at the reading position, which moves on; between samples by a cubic through four of them.
  next(stream) {
    const { ring } = this;
    const i = Math.floor(stream.read);
    const f = stream.read - i;
    stream.read += stream.step;
    const b = ring[i & MASK];
    if (f === 0) return b;
    const a = i > 0 ? ring[(i - 1) & MASK] : b;
    const c = i + 1 < stream.written ? ring[(i + 1) & MASK] : 0;
    const d = i + 2 < stream.written ? ring[(i + 2) & MASK] : 0;
    return b + 0.5 * f * (c - a + f * (2 * a - 5 * b + 4 * c - d + f * (3 * (b - c) + d - a)));
  }

  ready(stream, frames) {
    const { left } = stream;
    if (stream.ended) return true;
    if (left < 2 * frames * stream.step + 2) return false;
    stream.waited += frames;
    // A short piece that stays alone is worth playing too, though not at once.
    return left >= stream.reserve || stream.waited * stream.step >= 2 * stream.reserve;
  }

  render(stream, out) {
    const { left, step } = stream;
    let frames = out.length;
    // Less than two blocks: nothing may be there for the next one, and a fade needs sound to fade.
    const dry = !stream.ended && left < 2 * frames * step + 2;
    if (stream.ended) frames = Math.min(frames, Math.ceil(left / step));
    const first = stream.read;
    let audible = -1;
    for (let i = 0; i < frames; i++) {
      let x = this.next(stream);
      if (stream.resumes) x *= (i + 1) / frames;
      if (dry) x *= 1 - (i + 1) / frames;
      if (audible < 0 && Math.abs(x) >= AUDIBLE) audible = i;
      out[i] = x;
    }
    stream.resumes = false;
    if (audible >= 0 && !stream.audible) {
      stream.audible = true;
      const at = { frame: currentFrame + audible, position: first + audible * step };
      this.port.postMessage({ event: "audible", stream: stream.id, ...at });
    }
    if (dry) {
      stream.playing = false;
      stream.resumes = true;
      stream.waited = 0;
      this.tell("dry", stream, currentFrame + frames);
    } else if (stream.ended && stream.read >= stream.written) {
      stream.read = stream.written;
      stream.playing = false;
      stream.finished = true;
      this.tell("finished", stream, currentFrame + frames);
    }
  }

  process(_, [[out]]) {
    const stream = this.stream;
    if (stream && !stream.finished) {
      if (!stream.playing && this.ready(stream, out.length)) {
        stream.playing = true;
        this.tell("go", stream, currentFrame);
      }
      if (stream.playing) this.render(stream, out);
      if (currentFrame >= this.levelAt) {
        this.levelAt = currentFrame + LEVEL_S * sampleRate;
        this.tell("level", stream, currentFrame + out.length);
      }
    }
    for (let i = 0; i < out.length && this.tailAt < this.tail.length; i++) out[i] += this.tail[this.tailAt++];
    return true;
  }
}

registerProcessor("voxwire-player", VoxwirePlayer);
