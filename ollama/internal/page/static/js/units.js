// Numbers in words.

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** 1.3 GB, in powers of a thousand as downloads and Ollama count. */
export function bytes(count) {
  let value = Number(count), unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** 4.2 ms, 1.3 s, 5 min; "–" for what is not known. */
export function seconds(s) {
  if (!s) return "–";
  if (s < 0.1) return `${(1000 * s).toFixed(1)} ms`;
  if (s < 10) return `${s.toFixed(2)} s`;
  return s < 120 ? `${Math.round(s)} s` : `${Math.round(s / 60)} min`;
}

export const rate = (perS) => (perS ? `${perS.toFixed(1)} tokens/s` : "–");

/** Blocks 0 to 11, counted from 0 as everywhere. */
export const blocks = (stage) => (stage.end - stage.start === 1 ? `${stage.start}` : `${stage.start} to ${stage.end - 1}`);
