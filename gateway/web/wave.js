// The waveform: grows as audio arrives, with the playhead at what is heard. While speech runs it scrolls under the
// playhead; when it is over the whole is shown.

const BUCKET_S = 0.02;
const BAR = 2;
const STEP = 3; // pixels from bar to bar
const HEAD = 0.42; // where the playhead stays while the rest scrolls
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Wave {
  #peaks = [];
  #filled = 0; // samples in the last bucket
  #bucket = 480;
  #rate = 24000;
  #samples = 0;
  #gaps = [];
  #span = 0; // buckets in view
  #size = { width: 0, height: 0, scale: 1 };
  #colours = {};

  constructor(canvas) {
    this.canvas = canvas;
    this.paint = canvas.getContext("2d");
    new ResizeObserver(() => this.#resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#theme());
    this.#theme();
  }

  // Begin anew for audio at `rate` Hz.
  begin(rate) {
    this.#rate = rate;
    this.#bucket = Math.round(rate * BUCKET_S);
    this.#peaks = [];
    this.#filled = 0;
    this.#samples = 0;
    this.#gaps = [];
    this.#span = 0;
  }

  get buckets() {
    return this.#peaks.length;
  }

  push(samples) {
    for (const sample of samples) {
      if (this.#filled === 0) this.#peaks.push(0);
      const last = this.#peaks.length - 1;
      const peak = Math.abs(sample);
      if (peak > this.#peaks[last]) this.#peaks[last] = peak;
      this.#filled = (this.#filled + 1) % this.#bucket;
    }
    this.#samples += samples.length;
  }

  // A gap was heard after `seconds` of the audio.
  gap(seconds) {
    this.#gaps.push(seconds / BUCKET_S);
  }

  // Drop what will not be heard any more.
  cut(sample) {
    this.#samples = Math.min(this.#samples, sample);
    this.#peaks.length = Math.min(this.#peaks.length, Math.ceil(sample / this.#bucket));
  }

  // Draw with the playhead at `sample`. `live`: more may come. Returns whether the view still moves by itself.
  draw(sample, live) {
    const { paint } = this;
    const { width, height, scale } = this.#size;
    if (!width) return false;
    const room = Math.floor(width / STEP);
    const whole = Math.max(room, this.#peaks.length);
    const wanted = live ? room : whole;
    if (!this.#span || calm.matches) this.#span = wanted;
    else this.#span += (wanted - this.#span) * 0.14;
    if (Math.abs(this.#span - wanted) < 0.5) this.#span = wanted;
    const head = sample / this.#bucket;
    // From the live view to the whole one the left edge moves as the span does.
    const edge = Math.max(0, Math.min(head - HEAD * this.#span, whole - this.#span));
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, width, height);
    this.#bars(edge, this.#span / room, room, head);
    const x = (at) => ((at - edge) / this.#span) * room * STEP;
    paint.fillStyle = this.#colours.gap;
    for (const gap of this.#gaps) paint.fillRect(x(gap) - 1, height - 7, 2, 7);
    if (this.#peaks.length && (live || head < this.#peaks.length - 1)) {
      paint.fillStyle = this.#colours.head;
      paint.fillRect(Math.round(x(head)), 0, 1.5, height);
    }
    return this.#span !== wanted;
  }

  #bars(edge, perBar, room, head) {
    const { paint } = this;
    const { height } = this.#size;
    const middle = height / 2;
    const shift = perBar === 1 ? edge - Math.floor(edge) : 0;
    for (let i = 0; i <= room; i++) {
      const from = Math.floor(edge + (i - (perBar === 1 ? 0 : shift)) * perBar);
      const to = Math.max(from + 1, Math.floor(edge + (i + 1) * perBar));
      let peak = -1;
      for (let j = from; j < to && j < this.#peaks.length; j++) peak = Math.max(peak, this.#peaks[j]);
      const x = (i - shift) * STEP;
      if (peak < 0) {
        paint.fillStyle = this.#colours.rest;
        paint.fillRect(x, middle - 0.75, BAR, 1.5);
        continue;
      }
      const half = Math.max(1, (height / 2 - 3) * Math.min(1, peak) ** 0.75);
      paint.fillStyle = from < head ? this.#colours.heard : this.#colours.ahead;
      paint.beginPath();
      paint.roundRect(x, middle - half, BAR, 2 * half, 1);
      paint.fill();
    }
  }

  #resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const scale = Math.min(3, devicePixelRatio || 1);
    this.#size = { width, height, scale };
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.onchange?.();
  }

  #theme() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["heard", "ahead", "rest", "head", "gap"]) {
      this.#colours[name] = style.getPropertyValue(`--wave-${name}`).trim();
    }
    this.onchange?.();
  }
}
