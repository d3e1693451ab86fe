// Shows in the text what is heard: everything before the present word, the word, the rest. The text lies in an element
// behind the (transparent) text area, letter on letter. While words go by nothing of it is laid out again, however long
// it is: the word's mark is a box put behind it, the rest a highlight.

const HOLD_S = 0.35; // a word stays marked this long after its end if no other begins

export class Reading {
  #words = []; // {start, end} in UTF-16 units of the area's text, {from, to} in seconds
  #base = 0; // where the spoken text begins in the area's text
  #text = ""; // the spoken text, from there
  #points = 0; // code points up to ...
  #units = 0; // ... this place in #text: the gateway counts in code points, JavaScript in UTF-16 units
  #shown = ["", 0, 0];
  #letters = document.createTextNode("");
  #word = document.createRange();
  #rest = document.createRange();
  #marks = []; // boxes; a word that is broken over lines has several

  constructor(back, area) {
    this.back = back;
    this.area = area;
    back.replaceChildren(this.#letters, "\u200b"); // keeps the height of an empty last line
    // A layer of its own: within the text a box that moves would have it laid out anew.
    this.layer = document.createElement("div");
    this.layer.className = "marks";
    back.before(this.layer);
    // Older browsers lack highlights: they show the word and do not dim the rest.
    globalThis.CSS?.highlights?.set("unheard", new Highlight(this.#rest));
    new ResizeObserver(() => this.#mark()).observe(back);
    this.plain();
  }

  // The text in three: before the word, the word, the rest.
  get shown() {
    const [text, from, to] = this.#shown;
    return [text.slice(0, from), text.slice(from, to), text.slice(to)];
  }

  // No marks: just the text as it is.
  plain() {
    this.#words = [];
    this.#show(this.area.value.length, this.area.value.length);
  }

  // Words will come for the area's text from `base` on.
  begin(base) {
    this.#words = [];
    this.#base = base;
    this.#points = 0;
    this.#units = 0;
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

  #show(start, end) {
    const text = this.area.value;
    const to = Math.min(end, text.length); // what is heard may have been erased meanwhile
    const from = Math.min(start, to);
    const [was, wasFrom, wasTo] = this.#shown;
    if (from === wasFrom && to === wasTo && text === was) return;
    this.#shown = [text, from, to];
    if (text !== was) this.#letters.data = text;
    this.#rest.setStart(this.#letters, to);
    this.#rest.setEnd(this.#letters, text.length);
    this.#word.setStart(this.#letters, from);
    this.#word.setEnd(this.#letters, to);
    this.#mark();
    if (to > from) this.#reveal();
  }

  #mark() {
    const boxes = this.#word.collapsed ? [] : this.#word.getClientRects();
    const origin = this.back.getBoundingClientRect();
    while (this.#marks.length < boxes.length) {
      const mark = document.createElement("mark");
      this.#marks.push(mark);
      this.layer.append(mark);
    }
    this.#marks.forEach((mark, i) => {
      mark.hidden = i >= boxes.length;
      if (mark.hidden) return;
      const { left, top, width, height } = boxes[i];
      Object.assign(mark.style, {
        transform: `translate(${left - origin.left}px, ${top - origin.top}px)`,
        width: `${width}px`,
        height: `${height}px`,
      });
    });
  }

  // The present word stays in view of a text that scrolls.
  #reveal() {
    const view = this.back.parentElement.parentElement;
    if (view.scrollHeight <= view.clientHeight) return;
    const outer = view.getBoundingClientRect();
    const inner = this.#word.getBoundingClientRect();
    if (inner.bottom > outer.bottom - 40 || inner.top < outer.top) {
      view.scrollTop += inner.top - outer.top - outer.height / 3;
    }
  }
}
