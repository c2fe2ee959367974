// This machine's own server: calls, and a session as it changes.

const KEPT = "kafila-token";

/** A sentence of the server's, or of this page's about it. */
export class Refused extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

let token = "";

/** Takes the token that `ollama session page` put behind the address, and out of sight; else the one kept in this tab. */
export function findToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname);
    keepToken(given);
  }
  token = sessionStorage.getItem(KEPT) ?? "";
}

export function keepToken(given) {
  sessionStorage.setItem(KEPT, given);
  token = given;
}

const headers = (more = {}) => ({ ...(token && { Authorization: `Bearer ${token}` }), ...more });

async function answered(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new Refused("This machine's server does not answer: is `ollama serve` running?", 0);
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Refused(told.error ?? `the server answered ${answer.status}`, answer.status);
  }
  return answer;
}

/** The JSON that a route below /api/session answers; body: none asks by GET. */
export async function call(route, body) {
  const options = body === undefined ? { headers: headers() }
    : { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) };
  return (await answered(`/api/session/${route}`, options)).json();
}

/** A text as the SVG of a QR code. */
export async function drawn(text) {
  const options = { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify({ text }) };
  return (await answered("/api/session/qr", options)).text();
}

/** What a session is now and after each change, until it is closed or `signal` says stop. */
export async function* watched(session, signal) {
  const options = { headers: headers({ Accept: "text/event-stream" }), signal };
  const answer = await answered(`/api/session/watch?session=${encodeURIComponent(session)}`, options);
  for await (const line of lines(answer.body)) {
    if (line.startsWith("data: ")) yield told(line.slice(6));
  }
}

/** The parts of an answer of /api/chat. */
export async function* chatted(model, messages, signal) {
  const options = {
    method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify({ model, messages }),
  };
  for await (const line of lines((await answered("/api/chat", options)).body)) yield told(line);
}

function told(line) {
  const message = JSON.parse(line);
  if (typeof message.error === "string") throw new Refused(message.error, 0);
  return message;
}

async function* lines(body) {
  let rest = "";
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    yield* parts.filter(Boolean);
  }
  if (rest) yield rest;
}
