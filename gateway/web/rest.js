// Requests beside the socket. A page without a key gets a token for each, which works once and does one thing.

const DEADLINE_MS = 90_000;

export class Rest {
  constructor(gateway) {
    this.gateway = gateway;
  }

  // The JSON answer; an Error with `code`, `message` and `retry_after` for a refusal.
  async ask(method, path, scope, body) {
    const headers = this.gateway.key
      ? { "X-API-Key": this.gateway.key }
      : { Authorization: `Bearer ${(await this.#send("POST", "v1/token", {}, { scopes: [scope] })).token}` };
    return this.#send(method, path, headers, body);
  }

  async #send(method, path, headers, body) {
    const form = body instanceof FormData;
    const init = { method, headers, credentials: "omit", signal: AbortSignal.timeout(DEADLINE_MS) };
    if (body !== undefined) init.body = form ? body : JSON.stringify(body);
    if (body !== undefined && !form) headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await fetch(new URL(path, this.gateway.base), init);
    } catch {
      throw Object.assign(new Error("the gateway did not answer"), { code: "lost" });
    }
    const said = await answer.json().catch(() => ({}));
    if (answer.ok) return said;
    const error = said.error ?? {};
    throw Object.assign(new Error(error.message ?? `the gateway answered ${answer.status}`), error);
  }
}
