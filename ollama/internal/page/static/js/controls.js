// What a person does to sessions.
import { asked, at, el, presses, say, submits } from "./dom.js";
import { call, drawn } from "./server.js";
import { agreed, examine, showAlternatives } from "./session.js";
import { bytes } from "./units.js";

/** Wires the forms with which a session begins; `taken` is told its id. */
export function beginnings(taken) {
  submits(at("join-form"), async ({ code, name }) => {
    const offer = await call("open", { code, name });
    if (!offer.joined && !(await agreed(offer))) return;
    taken(offer.joined ? offer.session : (await call("join", { session: offer.session })).id);
  });
  submits(at("create-form"), async (form) => {
    const request = { model: form.model, name: form.name, choose_plan: form.members !== "1" };
    for (const count of ["members", "concurrency", "context_tokens"]) if (form[count]) request[count] = Number(form[count]);
    if (!(await asked({ title: `Open a session with ${form.model}?`, yes: "Open", text: opening(request) }))) return;
    taken((await call("create", request)).id);
  });
}

const opening = ({ members, choose_plan: chooses }) => [
  members ? `It waits for ${members} members, this machine included, and takes no more.` : "It waits until you start it with those who are there.",
  chooses ? "Then the model is divided, and nothing is fetched before you have seen the plan." : "This machine fetches the model."];

/** The short names that can be typed, and what the chosen one needs. */
export async function offerModels() {
  const { models } = await call("models");
  at("models").replaceChildren(...models.map((model) => el("option", { value: model.name })));
  at("create-form").elements.model.addEventListener("input", (event) => {
    const model = models.find((one) => [one.name, ...one.also].includes(event.target.value));
    at("model-note").textContent = model
      ? `${bytes(model.weight_bytes)} to download in all; on three equal machines ${bytes(model.needed_bytes[2])} of memory each. ${model.note}` : "";
  });
}

/** Wires the buttons; `now` is the session that is shown. */
export function buttons(now) {
  const id = () => ({ session: now().id });
  presses(at("copy"), async () => {
    await navigator.clipboard.writeText(at("command").textContent);
    say("Copied: the line to type on the other machines.");
  });
  presses(at("show-qr"), async () => {
    const figure = at("qr"), button = at("show-qr");
    if (figure.hidden) {
      const image = el("img", { alt: "The code as a QR code", src: `data:image/svg+xml,${encodeURIComponent(await drawn(now().whole_code || now().code))}` });
      figure.replaceChildren(image);
    }
    figure.hidden = !figure.hidden;
    button.setAttribute("aria-expanded", String(!figure.hidden));
  });
  const does = (button, question, work) => presses(at(button), async () => { if (await asked(question())) await work(); });
  does("new-code", () => ({ title: "Make a new code?", yes: "New code", text: "The old one is good for nothing then; members stay." }),
    () => call("code", id()));
  does("lock", () => (now().joining === "locked"
    ? { title: "Unlock the session?", yes: "Unlock", text: "Whoever has the code can join again." }
    : { title: "Lock the session?", yes: "Lock", text: "Nobody gets in until it is unlocked; members stay, and come back if they were lost." }),
    () => call("lock", { ...id(), locked: now().joining !== "locked" }));
  does("start", () => ({ title: "Start with those who are here?", yes: "Start", text: "The model is divided among them, and fetched." }),
    () => call("start", id()));
  does("replan", () => ({ title: "Plan again?", yes: "Plan again", text: now().better_plan || "If there is a better plan it is taken; answers go on after a pause." }),
    () => (now().better_plan ? call("replan", id()) : say("No better plan is known: this one stays.")));
  does("leave", () => ({ title: "Leave this session?", yes: "Leave", text: "The others plan again without this machine. To come back it needs the code." }),
    () => leave(now()));
  presses(at("alternatives"), () => showAlternatives(now()));
  presses(at("doctor"), examine);
  at("choices").addEventListener("click", async ({ target }) => {
    const { choose: objective, division, shown } = target.dataset;
    if (objective === undefined || !(await asked({ title: "Fetch by this plan?", yes: "Fetch",
      text: ["Each member fetches and loads its blocks:", `${division}.`] }))) return;
    call("choose", { ...id(), objective, shown: JSON.parse(shown) }).catch((refused) => say(refused.message));
  });
  at("members").addEventListener("click", async ({ target }) => {
    const member = target.dataset.kick;
    if (!member || !(await asked({ title: `Remove ${member}?`, yes: "Remove",
      text: "It can't come back with the present code; a new one is made. The ring is planned again without it." }))) return;
    call("kick", { ...id(), member }).catch((refused) => say(refused.message));
  });
}

async function leave(session) {
  const { kept_back: why } = await call("leave", { session: session.id });
  if (!why) return;
  if (await asked({ title: "Leave all the same?", yes: "Leave at once", text: why })) {
    await call("leave", { session: session.id, at_once: true });
  }
}
