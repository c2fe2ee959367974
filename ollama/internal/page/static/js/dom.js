// Elements, with texts that are never read as markup.

export const at = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is no node is a text. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** As `el`, of a drawing. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== false && value != null) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** A sentence with what stands between backticks as something to type. */
export function told(sentence) {
  return sentence.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part)).filter(Boolean);
}

/** Puts rows into a table's body, unless they are what it shows: who reads or selects there is not disturbed. */
export function fill(element, ...children) {
  const fresh = el("div", {}, ...children);
  if (fresh.innerHTML !== element.innerHTML) element.replaceChildren(...fresh.childNodes);
}

/** Asks before something is done; resolves to whether it shall be. */
export function asked({ title, text, yes }) {
  const dialog = at("ask");
  at("ask-title").textContent = title;
  at("ask-text").replaceChildren(...[text].flat().map((line) => el("p", {}, line)));
  dialog.querySelector("button[value=yes]").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** A sentence in the corner, for as long as it takes to read it. */
export function say(sentence) {
  const toast = el("p", { class: "toast" }, sentence);
  at("toasts").append(toast);
  setTimeout(() => toast.remove(), 4000 + 60 * sentence.length);
}

/** A form that calls, says what was wrong beside its button, and can't be sent twice meanwhile. */
export function submits(form, work) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button"), problem = form.querySelector(".problem");
    button.disabled = true;
    problem.textContent = "";
    try {
      await work(Object.fromEntries(new FormData(form)));
    } catch (refused) {
      problem.textContent = refused.message;
    } finally {
      button.disabled = false;
    }
  });
}

/** A button that calls; what is refused is said. */
export function presses(button, work) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await work();
    } catch (refused) {
      say(refused.message);
    } finally {
      button.disabled = false;
    }
  });
}
