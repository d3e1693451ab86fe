// Samples of the wire as Float32Array.

// ITU-T G.711 mu-law, by the expansion of G.191: 14 bits scaled to 16.
const MULAW = Float32Array.from({ length: 256 }, (_, byte) => {
  const code = ~byte & 0xff;
  const magnitude = (((code & 0x0f) << 3) + 0x84) << ((code & 0x70) >> 4);
  return (code & 0x80 ? 0x84 - magnitude : magnitude - 0x84) / 32768;
});

// A function from ArrayBuffer to Float32Array for one of the gateway's encodings.
export function decoder(encoding) {
  switch (encoding) {
    case "pcm_s16le":
      return (data) => Float32Array.from(new Int16Array(data), (x) => x / 32768);
    case "pcm_f32le":
      return (data) => new Float32Array(data);
    case "mulaw":
      return (data) => Float32Array.from(new Uint8Array(data), (x) => MULAW[x]);
    default:
      throw new Error(`no decoder for ${encoding}`);
  }
}

// The format to ask for so that nothing must be resampled here: at the output's own rate if the gateway makes it,
// else at the next lower one.
export function formatFor(outputRate, offered) {
  const rate = Math.max(...offered.filter((r) => r <= outputRate), Math.min(...offered));
  return { encoding: "pcm_s16le", sample_rate: rate };
}
