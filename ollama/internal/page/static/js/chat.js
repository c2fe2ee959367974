// A chat with the session's model, for people without a terminal.
import { at, el } from "./dom.js";
import { chatted } from "./server.js";

/** Wires the chat; `now` is the session that is shown. The conversation stays through whatever becomes of the ring. */
export function chat(now) {
  let messages = [], running = null;
  const form = at("chat-form"), box = at("message"), talk = at("talk");

  function turn(role, text) {
    const element = el("div", { class: `turn ${role}` }, text);
    talk.append(element);
    talk.scrollTop = talk.scrollHeight;
    return element;
  }

  async function answer(element) {
    let text = "";
    for await (const part of chatted(now().vehicle.name, messages, running.signal)) {
      text += part.message?.content ?? "";
      element.textContent = text;
      talk.scrollTop = talk.scrollHeight;
    }
    return text;
  }

  async function send() {
    const question = box.value.trim();
    if (!question || running || !now().vehicle) return;
    box.value = "";
    messages.push({ role: "user", content: question });
    turn("user", question);
    const element = turn("assistant", "…");
    running = new AbortController();
    busy(true);
    try {
      messages.push({ role: "assistant", content: await answer(element) });
    } catch (failure) {
      messages.pop(); // the question can be sent again
      if (element.textContent === "…") element.textContent = "";
      turn("failed", failure.name === "AbortError" ? "Stopped." : failure.message);
      if (failure.name !== "AbortError") box.value = question;
    } finally {
      running = null;
      busy(false);
    }
  }

  function busy(is) {
    at("send").hidden = is;
    at("stop").hidden = !is;
    if (!is) box.focus({ preventScroll: true });
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  at("stop").addEventListener("click", () => running?.abort());
  at("forget").addEventListener("click", () => { running?.abort(); messages = []; talk.replaceChildren(); box.focus(); });
}
