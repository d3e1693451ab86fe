// Consent that is read aloud: the gateway shows a text, the visitor reads it, the gateway listens.

import { explain } from "./errors.js";
import { Recorder } from "./recorder.js";
import { Take } from "./take.js";

const MOST_S = 29;
const SCOPE = "voice:enrol";

const $ = (id) => document.getElementById(id);

// Event: "change", when there is a consent, or none any more.
export class SpokenConsent extends EventTarget {
  #rest;
  #terms;
  #take;
  #challenge = null;
  #busy = false;
  id = null;
  offered = false;

  // `terms` gives the fields of the record besides the challenge.
  constructor(rest, terms) {
    super();
    this.#rest = rest;
    this.#terms = terms;
    const parts = { button: $("own-read"), level: $("own-read-level"), seconds: $("own-read-seconds") };
    this.#take = new Take(parts, MOST_S, () => this.#ask());
    this.#take.addEventListener("begun", () => this.#note("Read it now, and stop when you are done."));
    this.#take.addEventListener("failed", ({ detail }) => this.#failed(detail));
    this.#take.addEventListener("taken", ({ detail }) => this.#answer(detail.clip));
  }

  get busy() {
    return this.#busy || this.#take.running;
  }

  // Whether the gateway listens; without that, or without a microphone, the tick remains.
  offer(listens) {
    this.offered = Recorder.possible && listens;
    $("own-spoken").hidden = !this.offered;
    $("own-tick").hidden = this.offered;
    this.#changed();
  }

  // Each voice is agreed to by itself.
  clear(words = "") {
    this.id = null;
    this.#show("");
    this.#note(words);
    this.#changed();
  }

  async #ask() {
    this.id = null;
    this.#changed();
    this.#note("");
    this.#challenge = await this.#rest.ask("POST", "v1/consents/challenges", SCOPE, {});
    this.#show(this.#challenge.text);
  }

  async #answer(clip) {
    const form = new FormData();
    for (const [name, value] of Object.entries(this.#terms())) form.append(name, value);
    form.append("challenge", this.#challenge.id);
    form.append("how", "spoken");
    form.append("file", clip, "answer");
    this.#working(true);
    this.#note("Listening to what you read");
    try {
      const record = await this.#rest.ask("POST", "v1/consents", SCOPE, form);
      this.#show("");
      this.#note("Heard and recorded.");
      this.id = record.id;
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#working(false);
    }
  }

  #failed(error) {
    this.#show("");
    this.#note(error.code ? explain(error).text : error.message, "bad");
    this.#changed();
  }

  #working(busy) {
    this.#busy = busy;
    $("own-read").disabled = busy;
    this.#changed();
  }

  #show(text) {
    $("own-text").textContent = text;
    $("own-text").hidden = !text;
  }

  #note(text, kind = "") {
    $("own-heard").textContent = text;
    $("own-heard").dataset.kind = kind;
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
