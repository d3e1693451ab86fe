// Hands on what the microphone hears, mixed to one channel, in blocks of about 50 ms.

class Recorder extends AudioWorkletProcessor {
  #block = new Float32Array(Math.ceil((sampleRate * 0.05) / 128) * 128);
  #filled = 0;

  process([input]) {
    if (!input.length) return true; // nothing is connected yet
    const size = input[0].length;
    for (let i = 0; i < size; i++) {
      let sum = 0;
      for (const channel of input) sum += channel[i];
      this.#block[this.#filled + i] = sum / input.length;
    }
    this.#filled += size;
    if (this.#filled >= this.#block.length) {
      this.port.postMessage(this.#block.slice(0, this.#filled));
      this.#filled = 0;
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
