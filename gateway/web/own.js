// The panel in which a visitor makes a voice of their own, tries it and deletes it.

import { explain } from "./errors.js";
import { Recorder } from "./recorder.js";
import { Rest } from "./rest.js";

const LEAST_S = 3;
const MOST_S = 30;

const $ = (id) => document.getElementById(id);
const random = () => [...crypto.getRandomValues(new Uint8Array(8))].map((x) => x.toString(16).padStart(2, "0")).join("");

// Events: "made" and "gone" (detail: the voice's id), "try" (detail: its id).
export class OwnVoices extends EventTarget {
  #gateway;
  #rest;
  #recorder = null;
  #clip = null;
  #busy = false;
  #voices = new Map(); // id -> {id, name, kind}

  constructor(gateway) {
    super();
    this.#gateway = gateway;
    this.#rest = new Rest(gateway);
    $("own-record").hidden = !Recorder.possible;
    $("own-record").addEventListener("click", () => this.#toggle());
    $("own-file").addEventListener("change", () => {
      const [file] = $("own-file").files;
      $("own-file").value = "";
      if (file) this.#took(file, file.name);
    });
    $("own-agree").addEventListener("input", () => this.#ready());
    $("own-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#make();
    });
    gateway.addEventListener("hello", ({ detail }) => this.#hello(detail));
  }

  #hello({ cloning, voices }) {
    $("own").hidden = !cloning;
    this.#voices = new Map(voices.filter(({ kind }) => kind !== "built_in").map((voice) => [voice.id, voice]));
    this.#show();
  }

  async #toggle() {
    if (this.#recorder) {
      await this.#finish();
      return;
    }
    const recorder = new Recorder(MOST_S);
    this.#note("");
    try {
      await recorder.start();
    } catch (error) {
      this.#note(error.message, "bad");
      return;
    }
    this.#recorder = recorder;
    this.#clip = null;
    $("own-clip").textContent = "";
    recorder.addEventListener("level", ({ detail }) => {
      $("own-level").value = detail.peak;
      $("own-seconds").textContent = `${detail.seconds.toFixed(1)} s`;
    });
    recorder.addEventListener("full", () => this.#finish());
    $("own-level").hidden = false;
    $("own-record").textContent = "Stop recording";
    $("own-record").setAttribute("aria-pressed", "true");
    this.#ready();
  }

  async #finish() {
    const recorder = this.#recorder;
    if (!recorder) return;
    this.#recorder = null;
    const { seconds } = recorder;
    const clip = await recorder.stop();
    $("own-level").hidden = true;
    $("own-seconds").textContent = "";
    $("own-record").textContent = "Record";
    $("own-record").setAttribute("aria-pressed", "false");
    if (seconds < LEAST_S) {
      this.#note(`That was ${seconds.toFixed(1)} s; ${LEAST_S} s or more are needed.`, "bad");
      this.#ready();
    } else {
      this.#took(clip, `${seconds.toFixed(1)} s recorded`);
    }
  }

  #took(clip, words) {
    this.#clip = clip;
    $("own-clip").textContent = words;
    this.#note("");
    this.#ready();
  }

  #ready() {
    $("own-make").disabled = this.#busy || Boolean(this.#recorder) || !this.#clip || !$("own-agree").checked;
  }

  #note(text, kind = "") {
    $("own-note").textContent = text;
    $("own-note").dataset.kind = kind;
  }

  #working(busy) {
    this.#busy = busy;
    $("own-progress").hidden = !busy;
    $("own-record").disabled = busy;
    this.#ready();
  }

  async #make() {
    if ($("own-make").disabled) return;
    this.#working(true);
    this.#note("Listening to the clip");
    try {
      const voice = await this.#enrol();
      this.#voices.set(voice.id, voice);
      this.#clip = null;
      $("own-clip").textContent = "";
      $("own-agree").checked = false; // each voice is agreed to by itself
      const warnings = voice.warnings.map(({ message }) => explain({ message }).text);
      this.#note(["The voice is made.", ...warnings].join(" "));
      this.#show();
      this.dispatchEvent(new CustomEvent("made", { detail: voice }));
    } catch (error) {
      this.#note(explain(error).text, "bad");
    } finally {
      this.#working(false);
    }
  }

  async #enrol() {
    const keep = $("own-keep").checked;
    const consent = await this.#rest.ask("POST", "v1/consents", "voice:enrol", {
      kind: keep ? "permanent" : "session",
      how: "written",
      subject: `page-${random()}`,
      statement: $("own-statement").textContent,
    });
    const form = new FormData();
    form.append("consent", consent.id);
    form.append("name", $("own-name").value.trim() || "My voice");
    if (!keep) form.append("session", this.#gateway.hello.session);
    form.append("file", this.#clip, "clip");
    return this.#rest.ask("POST", "v1/voices", "voice:enrol", form);
  }

  async #delete(id, button) {
    button.disabled = true;
    try {
      const { receipt } = await this.#rest.ask("DELETE", `v1/voices/${id}`, "voice:delete");
      this.#note(`Deleted. The receipt is ${receipt.id}.`);
    } catch (error) {
      if (error.code !== "unknown_voice") {
        button.disabled = false;
        this.#note(explain(error).text, "bad");
        return;
      }
    }
    this.#voices.delete(id);
    this.#show();
    this.dispatchEvent(new CustomEvent("gone", { detail: id }));
  }

  #show() {
    const button = (text, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.className = "plain";
      made.textContent = text;
      made.addEventListener("click", () => act(made));
      return made;
    };
    const rows = [...this.#voices.values()].map(({ id, name, kind }) => {
      const row = document.createElement("li");
      const called = document.createElement("span");
      called.className = "called";
      called.textContent = name || id;
      const until = document.createElement("small");
      until.textContent = kind === "session" ? "until you leave" : "kept";
      const tried = button("Try", () => this.dispatchEvent(new CustomEvent("try", { detail: id })));
      const gone = button("Delete", (self) => this.#delete(id, self));
      tried.setAttribute("aria-label", `Try ${called.textContent}`);
      gone.setAttribute("aria-label", `Delete ${called.textContent}`);
      row.append(called, until, tried, gone);
      return row;
    });
    $("own-list").replaceChildren(...rows);
    // A session's voice would not outlive a dropped connection otherwise.
    this.#gateway.keep = [...this.#voices.values()].some(({ kind }) => kind === "session");
  }
}
