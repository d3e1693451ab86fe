// Shows in the text what is heard: everything before the present word, the word, the rest. The text lies in an element
// behind the (then transparent) text area, letter on letter.

const HOLD_S = 0.35; // a word stays marked this long after its end if no other begins

export class Reading {
  #words = []; // {start, end} in UTF-16 units of the area's text, {from, to} in seconds
  #base = 0; // where the spoken text begins in the area's text
  #text = ""; // the spoken text, from there
  #points = 0; // code points up to ...
  #units = 0; // ... this place in #text: the gateway counts in code points, JavaScript in UTF-16 units
  #shown = ["", 0, 0];

  constructor(back, area) {
    this.back = back;
    this.area = area;
    this.parts = ["heard", "now", "rest"].map((name) => {
      const part = document.createElement(name === "now" ? "mark" : "span");
      part.className = name;
      part.append("");
      return part;
    });
    back.replaceChildren(...this.parts, "\u200b"); // keeps the height of an empty last line
    this.plain();
  }

  // No marks: just the text as it is.
  plain() {
    this.#words = [];
    this.#show(this.area.value.length, this.area.value.length);
    this.back.dataset.reading = "off";
  }

  // Words will come for the area's text from `base` on.
  begin(base) {
    this.#words = [];
    this.#base = base;
    this.#points = 0;
    this.#units = 0;
    this.back.dataset.reading = "on";
    this.#show(base, base);
  }

  // The spoken text so far; longer each time.
  follow(text) {
    this.#text = text;
  }

  add(words) {
    for (const { text_start, text_end, start, end } of words) {
      this.#words.push({ start: this.#place(text_start), end: this.#place(text_end), from: start, to: end });
    }
  }

  #place(points) {
    if (points < this.#points) {
      this.#points = 0;
      this.#units = 0;
    }
    while (this.#points < points && this.#units < this.#text.length) {
      this.#units += this.#text.codePointAt(this.#units) > 0xffff ? 2 : 1;
      this.#points += 1;
    }
    return this.#base + this.#units;
  }

  // Seconds into the audio at which the last known word ends.
  get until() {
    return this.#words.at(-1)?.to ?? 0;
  }

  // The spoken text in two: heard by `seconds`, and not. A word counts by its middle, as the gateway's account has it.
  split(seconds) {
    let cut = this.#base;
    for (const word of this.#words) if ((word.from + word.to) / 2 <= seconds) cut = word.end;
    return [this.#text.slice(0, cut - this.#base), this.#text.slice(cut - this.#base)];
  }

  // Mark what is heard `seconds` into the audio.
  at(seconds) {
    let low = 0;
    let high = this.#words.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#words[middle].from <= seconds) low = middle + 1;
      else high = middle;
    }
    const word = this.#words[low - 1];
    if (!word) this.#show(this.#base, this.#base);
    else if (seconds < word.to + HOLD_S) this.#show(word.start, word.end);
    else this.#show(word.end, word.end);
  }

  // Nothing is spoken any more: `length` units of the spoken text were heard, the rest was not.
  rest(length = this.#text.length) {
    const at = this.#base + length;
    this.#show(at, at);
  }

  #show(from, to) {
    const text = this.area.value;
    const [was, wasFrom, wasTo] = this.#shown;
    if (from === wasFrom && to === wasTo && text === was) return;
    this.#shown = [text, from, to];
    const cuts = [text.slice(0, from), text.slice(from, to), text.slice(to)];
    this.parts.forEach((part, i) => {
      if (part.firstChild.data !== cuts[i]) part.firstChild.data = cuts[i];
    });
    if (to > from) this.#reveal();
  }

  // The present word stays in view of a text that scrolls.
  #reveal() {
    const view = this.back.parentElement.parentElement;
    if (view.scrollHeight <= view.clientHeight) return;
    const outer = view.getBoundingClientRect();
    const inner = this.parts[1].getBoundingClientRect();
    if (inner.bottom > outer.bottom - 40 || inner.top < outer.top) {
      view.scrollTop += inner.top - outer.top - outer.height / 3;
    }
  }
}
