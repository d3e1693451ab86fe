// The panel in which a visitor makes a voice of their own, tries it and deletes it.

import { explain } from "./errors.js";
import { Rest } from "./rest.js";
import { SpokenConsent } from "./spoken.js";
import { Take } from "./take.js";

const LEAST_S = 3;
const MOST_S = 30;

const $ = (id) => document.getElementById(id);
const random = () => [...crypto.getRandomValues(new Uint8Array(8))].map((x) => x.toString(16).padStart(2, "0")).join("");

// Events: "made" and "gone" (detail: the voice's id), "try" (detail: its id).
export class OwnVoices extends EventTarget {
  #gateway;
  #rest;
  #take;
  #spoken;
  #clip = null;
  #busy = false;
  #voices = new Map(); // id -> {id, name, kind}

  constructor(gateway) {
    super();
    this.#gateway = gateway;
    this.#rest = new Rest(gateway);
    this.#take = new Take({ button: $("own-record"), level: $("own-level"), seconds: $("own-seconds") }, MOST_S);
    this.#take.addEventListener("begun", () => this.#took(null, ""));
    this.#take.addEventListener("failed", ({ detail }) => this.#note(detail.message, "bad"));
    this.#take.addEventListener("taken", ({ detail }) => this.#recorded(detail));
    this.#spoken = new SpokenConsent(this.#rest, () => this.#terms());
    this.#spoken.addEventListener("change", () => this.#ready());
    $("own-keep").addEventListener("input", () => {
      if (this.#spoken.id) this.#spoken.clear("Read it again: keeping a voice is agreed to by itself.");
    });
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

  #hello({ cloning, spoken, voices }) {
    $("own").hidden = !cloning;
    this.#spoken.offer(spoken);
    this.#voices = new Map(voices.filter(({ kind }) => kind !== "built_in").map((voice) => [voice.id, voice]));
    this.#show();
  }

  #recorded({ clip, seconds }) {
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
    const agreed = this.#spoken.offered ? this.#spoken.id : $("own-agree").checked;
    const busy = this.#busy || this.#take.running || this.#spoken.busy;
    $("own-make").disabled = busy || !this.#clip || !agreed;
  }

  #note(text, kind = "") {
    $("own-note").textContent = text;
    $("own-note").dataset.kind = kind;
  }

  #working(busy) {
    this.#busy = busy;
    $("own-progress").hidden = !busy;
    $("own-record").disabled = busy;
    $("own-read").disabled = busy;
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
      this.#spoken.clear();
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

  #terms() {
    return { kind: $("own-keep").checked ? "permanent" : "session", subject: `page-${random()}` };
  }

  async #agreed() {
    if (this.#spoken.offered) return this.#spoken.id;
    const statement = $("own-statement").textContent;
    const terms = { ...this.#terms(), how: "written", statement };
    return (await this.#rest.ask("POST", "v1/consents", "voice:enrol", terms)).id;
  }

  async #enrol() {
    const keep = $("own-keep").checked;
    const form = new FormData();
    form.append("consent", await this.#agreed());
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
