// The unmodified official Node.js SDKs against a gateway over TLS.
// Arguments: folder with node_modules, gateway address (https). Prints one JSON object, a part per SDK.
"use strict";

const { createRequire } = require("node:module");

const [folder, url] = process.argv.slice(2);
const load = createRequire(folder + "/");
const TURN = ["Hello there, this is the first delta. ", "Your order number is 4215 ", "and it ships on Thursday."];
const TEXT = TURN.join("");

const packed = (parts) => Buffer.concat(parts.map((part) => Buffer.from(part))).toString("base64");

async function body(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return packed(parts);
}

async function cartesia() {
  const { Cartesia } = load("@cartesia/cartesia-js");
  const client = new Cartesia({ apiKey: "any", baseURL: url });
  const format = { container: "raw", encoding: "pcm_s16le", sample_rate: 22050 };
  const options = { model_id: "gepard-1.0", voice: { mode: "id", id: "heart" }, output_format: format };
  const socket = await client.tts.websocket();
  const said = async (context) => {
    const audio = [];
    const words = [];
    const kinds = [];
    for await (const event of context.receive({ timeout: 20000 })) {
      kinds.push(event.type);
      if (event.type === "chunk") audio.push(event.audio ?? Buffer.from(event.data, "base64"));
      if (event.type === "timestamps") words.push(...event.word_timestamps.words);
    }
    return { audio: packed(audio), words, kinds };
  };
  let context = socket.context({ ...options, contextId: "turn", add_timestamps: true });
  for (const transcript of TURN) await context.push({ transcript });
  await context.no_more_inputs();
  const turn = await said(context);
  context = socket.context({ ...options, contextId: "cut" });
  await context.push({ transcript: TEXT.repeat(10) });
  await new Promise((resolve) => setTimeout(resolve, 500));
  await context.cancel();
  context = socket.context({ ...options, contextId: "again" });
  await context.push({ transcript: "Second answer." });
  await context.no_more_inputs();
  const again = await said(context);
  socket.close();
  const bytes = await client.tts.generate({ ...options, transcript: TEXT });
  const voices = [];
  for await (const voice of client.voices.list()) voices.push(voice.id);
  return { turn, again, bytes: await body(bytes.body), voices };
}

async function elevenlabs() {
  const { ElevenLabsClient } = load("@elevenlabs/elevenlabs-js");
  const client = new ElevenLabsClient({ apiKey: "any", baseUrl: url, environment: url });
  const asked = { text: TEXT, modelId: "eleven_flash_v2_5", outputFormat: "pcm_22050" };
  const stream = await client.textToSpeech.stream("heart", asked);
  const timed = await client.textToSpeech.convertWithTimestamps("heart", asked);
  const mp3 = await client.textToSpeech.convert("heart", { text: TEXT });
  const known = await client.voices.getAll();
  return {
    stream: await body(stream),
    timed: timed.audioBase64,
    characters: timed.alignment.characters.join(""),
    mp3: await body(mp3),
    voices: known.voices.map((voice) => voice.voiceId),
  };
}

async function deepgram() {
  const { DeepgramClient } = load("@deepgram/sdk");
  const socketUrl = url.replace("http", "ws");
  const environment = { base: url, production: socketUrl, agent: socketUrl, agentRest: url };
  const client = new DeepgramClient({ apiKey: "any", environment });
  const model = "aura-2-thalia-en";
  const socket = await client.speak.v1.connect({
    model, encoding: "linear16", sample_rate: 24000, Authorization: "Token any", reconnectAttempts: 0,
  });
  const audio = [];
  const kinds = [];
  await new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("message", (message) => {
      if (message?.type) {
        kinds.push(message.type);
        if (message.type === "Flushed") resolve();
      } else {
        audio.push(message);
      }
    });
    socket.on("open", () => {
      for (const text of TURN) socket.sendText({ type: "Speak", text });
      socket.sendFlush({ type: "Flush" });
    });
    socket.connect?.();
  });
  socket.sendClose({ type: "Close" });
  socket.close();
  const parts = await Promise.all(
    audio.map(async (part) => (part instanceof Blob ? Buffer.from(await part.arrayBuffer()) : Buffer.from(part))),
  );
  const file = await client.speak.v1.audio.generate({ text: TEXT, model, encoding: "linear16" });
  return { audio: packed(parts), kinds, wav: packed([Buffer.from(await file.arrayBuffer())]) };
}

async function openai() {
  const { OpenAI } = load("openai");
  const client = new OpenAI({ apiKey: "any", baseURL: url + "/v1", maxRetries: 0 });
  const asked = { model: "gpt-4o-mini-tts", voice: "alloy", input: TEXT, response_format: "pcm" };
  const whole = await client.audio.speech.create(asked);
  const pcm = packed([Buffer.from(await whole.arrayBuffer())]);
  const events = await client.audio.speech.create({ ...asked, stream_format: "sse" });
  const text = await events.text();
  const deltas = text.split("\n\n").filter(Boolean).map((line) => JSON.parse(line.replace("data: ", "")));
  const sse = packed(deltas.filter((d) => d.audio).map((d) => Buffer.from(d.audio, "base64")));
  let status = 0;
  await client.audio.speech.create({ ...asked, voice: "nobody" }).catch((error) => {
    status = error.status;
  });
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  return { pcm, sse, status, models };
}

(async () => {
  const out = {};
  for (const [name, drive] of Object.entries({ cartesia, elevenlabs, deepgram, openai })) out[name] = await drive();
  process.stdout.write(JSON.stringify(out) + "\n", () => process.exit(0)); // not before all of it is out
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
