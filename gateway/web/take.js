// A button that records: press to begin, press again to stop.

import { Recorder } from "./recorder.js";

// Events: "begun", "failed" (detail: an Error), "taken" (detail: {clip, seconds}).
export class Take extends EventTarget {
  #button;
  #level;
  #seconds;
  #label;
  #most;
  #before;
  #recorder = null;
  #beginning = false;

  // `before` is awaited ahead of the microphone; what it throws is a failure.
  constructor({ button, level, seconds }, mostSeconds, before = async () => {}) {
    super();
    this.#button = button;
    this.#level = level;
    this.#seconds = seconds;
    this.#label = button.textContent;
    this.#most = mostSeconds;
    this.#before = before;
    button.hidden = !Recorder.possible;
    button.addEventListener("click", () => (this.#recorder ? this.#finish() : this.#begin()));
  }

  get running() {
    return this.#beginning || Boolean(this.#recorder);
  }

  async #begin() {
    if (this.#beginning) return;
    this.#beginning = true;
    const recorder = new Recorder(this.#most);
    try {
      await this.#before();
      await recorder.start();
      this.#recorder = recorder;
    } catch (error) {
      this.dispatchEvent(new CustomEvent("failed", { detail: error }));
      return;
    } finally {
      this.#beginning = false;
    }
    recorder.addEventListener("level", ({ detail }) => {
      this.#level.value = detail.peak;
      this.#seconds.textContent = `${detail.seconds.toFixed(1)} s`;
    });
    recorder.addEventListener("full", () => this.#finish());
    this.#level.hidden = false;
    this.#button.textContent = "Stop recording";
    this.#button.setAttribute("aria-pressed", "true");
    this.dispatchEvent(new Event("begun"));
  }

  async #finish() {
    const recorder = this.#recorder;
    if (!recorder) return;
    this.#recorder = null;
    const { seconds } = recorder;
    const clip = await recorder.stop();
    this.#level.hidden = true;
    this.#seconds.textContent = "";
    this.#button.textContent = this.#label;
    this.#button.setAttribute("aria-pressed", "false");
    this.dispatchEvent(new CustomEvent("taken", { detail: { clip, seconds } }));
  }
}
