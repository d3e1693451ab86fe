// Speaks a text while it is typed: whole words are sent as they are completed; a change of what was sent begins anew
// at the changed word.

export class Typing {
  #before = ""; // of the area's text: said earlier, or not to be said
  #sent = "";

  get base() {
    return this.#before.length;
  }

  get sent() {
    return this.#sent;
  }

  // From here on: `before` will not be spoken.
  begin(before) {
    this.#before = before;
    this.#sent = "";
  }

  // What to do about the area's new text: {restart: whether the turn's text changed, text: to be sent}. With `all`
  // also the word that is being typed.
  take(value, all = false) {
    const known = this.#before + this.#sent;
    let restart = false;
    if (!value.startsWith(known)) {
      let at = 0;
      while (at < known.length && known[at] === value[at]) at += 1;
      while (at > 0 && /\S/.test(value[at - 1])) at -= 1; // the whole word again
      restart = this.#sent !== "";
      this.begin(value.slice(0, at));
    }
    const rest = value.slice(this.#before.length + this.#sent.length);
    const text = all ? rest : (/^[^]*\s/.exec(rest)?.[0] ?? "");
    this.#sent += text;
    return { restart, text };
  }
}
