// Puts the page together: who owns this machine, which session is shown, and what it is now.
import { chart } from "./chart.js";
import { chat } from "./chat.js";
import { beginnings, buttons, offerModels } from "./controls.js";
import { at, el, say, submits } from "./dom.js";
import { call, findToken, keepToken, Refused, watched } from "./server.js";
import { drawRing, show } from "./session.js";

const LOOK_MS = 3000; // between looks for a session, and after the server was gone

let session = null; // as it is shown
let watching = null;

function shows(part) {
  for (const id of ["entry", "begin", "session"]) at(id).hidden = id !== part;
  at("last").hidden = part !== "begin" || !at("last").textContent;
}

/** The sessions of this machine; the page asks for the token where the server wants one. */
async function look() {
  try {
    const { sessions } = await call("list");
    const open = sessions.filter((one) => one.state !== "closed");
    offerChoice(open);
    if (!watching && open.length) watch(open[0].id);
    if (!watching && !open.length) {
      at("headline").textContent = "This machine takes part in no session.";
      shows("begin");
    }
  } catch (refused) {
    if (refused.status === 401) shows("entry");
    at("headline").textContent = refused.status === 401 ? "" : refused.message;
  }
}

function offerChoice(open) {
  const which = at("which");
  which.hidden = open.length < 2;
  if (document.activeElement === which) return;
  which.replaceChildren(...open.map((one) =>
    el("option", { value: one.id, selected: one.id === session?.id }, `${one.model.split("/").pop()} · ${one.state}`)));
}

/** Shows a session from now on, through restarts of the server, until it is over. */
async function watch(id) {
  watching?.abort();
  const mine = watching = new AbortController();
  while (watching === mine) {
    try {
      for await (const now of watched(id, mine.signal)) {
        session = now;
        show(now);
        shows("session");
        if (now.state === "closed") break;
      }
      break;
    } catch (failure) {
      if (mine.signal.aborted) return;
      at("headline").textContent = failure.message;
      if (failure instanceof Refused && failure.status) break; // it is no session any more, or not ours
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
  if (watching !== mine) return;
  watching = null;
  if (session?.failure) at("last").textContent = `The session with ${session.model} is over: ${session.failure}.`;
  session = null;
  look();
}

findToken();
submits(at("entry-form"), async ({ token }) => {
  keepToken(token.trim());
  await call("list");
  begin();
});
beginnings(watch);
buttons(() => session);
chat(() => session);
chart(at("chart"), () => session?.activity?.tokens_per_s ?? 0);
new ResizeObserver(() => session && drawRing(session)).observe(at("ring"));
at("which").addEventListener("change", (event) => watch(event.target.value));

let begun = false;

async function begin() {
  await look();
  if (begun || !at("entry").hidden) return;
  begun = true;
  offerModels().catch((refused) => say(refused.message));
  setInterval(look, LOOK_MS);
}

begin();
