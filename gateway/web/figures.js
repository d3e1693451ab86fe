// The figures of the present turn.

const $ = (id) => document.getElementById(id);
const NONE = "–";

const time = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(2)} s`);

function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(2)} MB`;
}

export class Figures {
  values = {};
  #shownAt = 0;

  constructor(player) {
    this.player = player;
  }

  begin(typing) {
    this.values = {};
    this.#shownAt = 0;
    for (const id of ["first", "silence", "gaps", "lead", "engine", "reserve", "received"]) $(id).textContent = NONE;
    $("first-note").textContent = typing ? "from your first words to your ear" : "from pressing Speak to your ear";
    $("engine-note").textContent = "of the engine";
    $("gaps-note").textContent = "times it ran dry";
    $("received-note").textContent = "on this turn";
  }

  // The first audible sample leaves the loudspeaker `ms` after the request.
  first(ms) {
    this.values.firstSound = ms / 1000;
    this.values.leadingSilence = this.player.leadingSilence;
    $("first").textContent = time(ms / 1000);
    $("silence").textContent = time(this.player.leadingSilence);
  }

  // The gateway's own account, at the end of a turn.
  stats({ rtf, audio_s: audio, cached_segments: cached, segments }) {
    if (audio > 0 && rtf > 0) {
      this.values.rtf = rtf;
      $("engine").textContent = rtf.toFixed(rtf < 0.095 ? 3 : 2);
      $("engine-note").textContent = `${(1 / rtf).toFixed(1)}× as fast as speech`;
    } else if (cached > 0 && cached === segments) {
      $("engine").textContent = "0";
      $("engine-note").textContent = "kept from an earlier time";
    }
  }

  // How much audio there is, in words.
  get length() {
    return time(this.player.pushed / this.player.rate);
  }

  show(turn, last = false) {
    const now = performance.now();
    if (now - this.#shownAt < 100 && !last) return; // calmer to read
    this.#shownAt = now;
    const { player, values } = this;
    if (!player.pushed) return;
    values.bytes = turn?.bytes ?? values.bytes;
    $("gaps").textContent = String(player.gaps);
    if (player.gaps) $("gaps-note").textContent = `${time(player.gapSeconds)} of waiting in all`;
    $("lead").textContent = `${player.lead.toFixed(1)} s`;
    $("reserve").textContent = time(player.reserve);
    $("received").textContent = size(values.bytes);
    $("received-note").textContent = `${this.length} of audio`;
  }
}
