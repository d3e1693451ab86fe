// Errors in words that say what to do.

const WORDS = {
  busy: "The gateway is full right now, and would rather say so than stutter.",
  limit_exceeded: "The limit of this key is reached for now.",
  draining: "The gateway is restarting. It will be back in a moment.",
  resume_gap: "The connection was away for too long, so the rest was not spoken.",
  engine_error: "The voice failed on this text.",
  engine_crashed: "The voice failed on this text.",
  engine_timeout: "The voice took too long to answer.",
  challenge_gone: "That took longer than two minutes. Press Read aloud for a new text.",
  challenge_not_read: "That did not sound like the text. Press Read aloud for a new one, and read all of it.",
  lost: "The gateway did not answer.",
  unknown_voice: "This voice is not there any more.",
  unknown_session: "The connection was away for too long. Try again.",
  interrupted: "Another app took the sound. Press Speak to go on.",
  no_sound: "The browser did not let the sound start. Press Speak again, and check that an output is connected.",
};
const AGAIN = new Set([
  "busy", "limit_exceeded", "draining", "resume_gap", "engine_error", "engine_crashed", "engine_timeout", "no_sound",
]);
const SILENT = new Set(["context_idle", "cancelled"]);

// {text, retry}: what to show, and whether trying again may help. An empty text: nothing needs to be said.
export function explain({ code, message }) {
  if (SILENT.has(code)) return { text: "", retry: false };
  let text = WORDS[code];
  if (!text && message) text = message[0].toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
  return { text: text ?? "Something failed in the gateway.", retry: AGAIN.has(code) };
}
