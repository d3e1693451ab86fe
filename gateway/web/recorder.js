// The microphone as a WAV file.

// 16-bit mono WAV of Float32Array blocks.
export function wav(blocks, rate) {
  const samples = blocks.reduce((sum, block) => sum + block.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * samples));
  const ascii = (at, text) => [...text].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  ascii(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples, true);
  ascii(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  ascii(36, "data");
  view.setUint32(40, 2 * samples, true);
  let at = 44;
  for (const block of blocks) {
    for (const x of block) {
      view.setInt16(at, Math.round(Math.max(-1, Math.min(1, x)) * 32767), true);
      at += 2;
    }
  }
  return new Blob([view.buffer], { type: "audio/wav" });
}

const WHY = {
  NotAllowedError: "The browser may not use the microphone. Allow it for this page, or choose a file.",
  NotFoundError: "There is no microphone here. Choose a file instead.",
  NotReadableError: "Another program holds the microphone. Close it, or choose a file.",
};

// One recording. Events: "level" (detail: {seconds, peak}), "full" when the longest time is reached.
export class Recorder extends EventTarget {
  #context = null;
  #stream = null;
  #blocks = [];
  #samples = 0;

  constructor(mostSeconds) {
    super();
    this.most = mostSeconds;
  }

  // Whether a page may ask for the microphone at all: only pages of this machine or over TLS may.
  static get possible() {
    return Boolean(navigator.mediaDevices?.getUserMedia && globalThis.AudioWorkletNode);
  }

  get seconds() {
    return this.#context ? this.#samples / this.#context.sampleRate : 0;
  }

  // As the room is: what a browser does for calls would become a part of the voice.
  async start() {
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({
        audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
      });
    } catch (error) {
      throw new Error(WHY[error.name] ?? "The microphone could not be opened. Choose a file instead.");
    }
    this.#context = new AudioContext();
    await this.#context.audioWorklet.addModule(new URL("record-worklet.js", import.meta.url));
    const node = new AudioWorkletNode(this.#context, "recorder", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => this.#take(data);
    this.#context.createMediaStreamSource(this.#stream).connect(node);
  }

  #take(block) {
    if (!this.#stream) return;
    this.#blocks.push(block);
    this.#samples += block.length;
    const peak = block.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    this.dispatchEvent(new CustomEvent("level", { detail: { seconds: this.seconds, peak } }));
    if (this.seconds >= this.most) this.dispatchEvent(new Event("full"));
  }

  // The WAV file; the microphone is let go.
  async stop() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
    const rate = this.#context?.sampleRate ?? 0;
    await this.#context?.close();
    this.#context = null;
    const blocks = this.#blocks;
    this.#blocks = [];
    return wav(blocks, rate);
  }
}
