// One session as it is shown.
import { asked, at, el, fill, told } from "./dom.js";
import { ringOf } from "./ring.js";
import { call } from "./server.js";
import { blocks, bytes, rate, seconds } from "./units.js";

const NARROW_PX = 480;
const DOING = { waiting: "waits", reading: "is read", answering: "is answered" };

let shown = null; // as it is shown now

/** Shows all of it. */
export function show(session) {
  shown = session;
  const isHost = session.self === session.host;
  document.title = `${session.state} · Kafila session`;
  fill(at("headline"), ...told(headline(session)));
  at("invitation").hidden = !session.code;
  at("code").textContent = session.code;
  at("command").textContent = `ollama run --session ${session.code}`;
  at("elsewhere").hidden = !session.whole_code || !session.rendezvous_note;
  at("whole-command").textContent = `ollama run --session ${session.whole_code}`;
  fill(at("joining"), ...told(joining(session)));
  at("lock").textContent = session.joining === "locked" ? "Unlock…" : "Lock…";
  for (const button of document.querySelectorAll("button.host")) button.disabled = !isHost;
  at("start").hidden = session.state !== "forming" || !isHost;
  at("replan").hidden = session.state === "forming";
  drawRing(session);
  showNumbers(session);
  showMembers(session, isHost);
  showHops(session);
  showPlan(session);
  showChoice(session);
  at("send").disabled = session.state !== "ready";
  at("message").placeholder = session.state === "ready" ? "Ask the model something. Enter sends, Shift and Enter begins a line."
    : "The model answers once the session is ready.";
}

/** By the width that there is, which may change while nothing else does. */
export function drawRing(session) {
  const isNarrow = at("ring").clientWidth < NARROW_PX;
  at("ring").classList.toggle("small", isNarrow);
  fill(at("ring"), ringOf(session, isNarrow));
}

function headline(session) {
  const model = session.model.split("/").pop();
  if (session.state === "closed") return session.failure ? `Closed: ${session.failure}` : "This session is over.";
  return `${model}: ${session.doing}`;
}

function joining(session) {
  const said = { locked: "Locked: nobody gets in.", unreachable: "The rendezvous does not answer: nobody can join now.",
    paused: "Paused: the code was guessed wrongly too often. Make a new one." };
  return said[session.joining] ?? session.rendezvous_note;
}

function showNumbers(session) {
  const trace = session.last_trace_json ? JSON.parse(session.last_trace_json) : null;
  const activity = session.activity ?? {};
  const numbers = { Now: rate(activity.tokens_per_s), Expected: rate(session.expected_tokens_per_s),
    "Last answer": rate(trace?.tokens_per_s), "First token after": seconds(trace?.ttft_s), Waiting: String(activity.waiting ?? 0) };
  fill(at("numbers"), ...Object.entries(numbers).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  fill(at("asking"), ...(activity.answering ?? []).map((one) =>
    el("li", {}, `${one.member}: a prompt of ${one.prompt_tokens} tokens ${DOING[one.doing] ?? one.doing}`
      + (one.answer_tokens ? `, ${one.answer_tokens} so far` : ""))));
}

function showMembers(session, isHost) {
  const stages = new Map(session.stages.map((stage) => [stage.member, stage]));
  fill(at("members").tBodies[0], ...session.members.map((member) => {
    const stage = stages.get(member.name);
    return el("tr", { class: member.present ? "" : "lost" },
      el("th", { scope: "row" }, member.name, el("div", { class: "quiet" }, [member.name === session.host && "host",
        stage?.head && "head", member.device].filter(Boolean).join(", "))),
      el("td", {}, doing(member), ...progress(member)),
      el("td", { class: "number" }, stage ? blocks(stage) : "–"),
      el("td", { class: "number" }, stage ? `${bytes(stage.resident_bytes)} of ${bytes(member.usable_memory_bytes)}`
        : `${bytes(member.usable_memory_bytes)} free`),
      el("td", { class: "number" }, seconds(stage?.predicted_s)),
      el("td", { class: "number" }, seconds(stage?.measured_s)),
      el("td", {}, member.if_lost || "–"),
      el("td", {}, ...(isHost && member.name !== session.self
        ? [el("button", { type: "button", "data-kick": member.name, "aria-label": `Remove ${member.name}…` }, "Remove…")] : [])));
  }));
}

const doing = (member) => (member.present ? member.waits_for || member.doing : "away");

function progress(member) {
  const here = Number(member.fetched_bytes), total = Number(member.fetch_total_bytes);
  if (member.doing !== "fetching" || !total) return [];
  const speed = member.fetch_rate_bytes_per_s;
  const left = speed ? `, ${bytes(speed)}/s, ${seconds((total - here) / speed)} left` : "";
  return [el("progress", { value: here, max: total, "aria-label": `${member.name} fetches` }),
    el("div", { class: "quiet" }, `${bytes(here)} of ${bytes(total)}${left}`)];
}

function showHops(session) {
  at("ways").hidden = !session.hops.length;
  fill(at("hops").tBodies[0], ...session.hops.map((hop) => el("tr", {},
    el("th", { scope: "row" }, `${hop.from} → ${hop.to}`), el("td", {}, hop.path === "relay" ? "by a relay" : hop.path),
    el("td", { class: "number" }, seconds(hop.predicted_s)), el("td", { class: "number" }, seconds(hop.measured_s)),
    el("td", { class: "number" }, seconds(hop.rtt_s)))));
}

let others = {}; // plans by what they are best at, of one epoch
let othersOf = "";

function showPlan(session) {
  at("better").hidden = !session.better_plan;
  at("better").textContent = session.better_plan;
  if (othersOf !== epochOf(session)) others = {};
  const name = session.state === "ready" ? "what runs now" : "this plan";
  const plans = { ...(session.plan_json && { [name]: JSON.parse(session.plan_json) }), ...others };
  at("plans").hidden = !Object.keys(plans).length;
  fill(at("plans").tBodies[0], ...Object.entries(plans).map(([name, plan]) => el("tr", {},
    el("th", { scope: "row" }, name), el("td", { class: "number" }, rate(plan.tokens_per_s_one_user)),
    el("td", { class: "number" }, rate(plan.tokens_per_s)), el("td", { class: "number" }, seconds(plan.ttft_s)),
    el("td", {}, plan.stages ? division(plan) : plan.reason))));
}

const division = (plan) => plan.stages.map((stage) => `${stage.member} ${stage.end - stage.start}`).join(", ");

const isChoosing = (session) => session.self === session.host
  && session.members.some((one) => one.name === session.self && one.doing === "choosing");

let askedFor = ""; // the epoch whose alternatives were asked for, so that they can be chosen

/** The first plan waits for its host: this one, or the one that is best for another objective. */
function showChoice(session) {
  at("choose").hidden = !isChoosing(session);
  if (at("choose").hidden) return;
  const plan = JSON.parse(session.plan_json);
  const now = division(plan);
  at("chosen").textContent = now;
  const differ = Object.entries(others).filter(([, plan]) => plan.stages && division(plan) !== now);
  fill(at("choices"), choice("", plan, "Fetch by this plan…", "strong"), ...differ.map(([objective, plan]) =>
    choice(objective, plan, `Best for ${objective}: ${division(plan)}, ${rate(plan.tokens_per_s_one_user)}…`, "")));
  if (askedFor === epochOf(session)) return;
  askedFor = epochOf(session);
  showAlternatives(session).then(() => showChoice(shown), () => {}); // else this plan alone can be chosen
}

const epochOf = (session) => `${session.id} ${session.epoch}`;

const choice = (objective, plan, label, kind) => el("button", { type: "button", class: kind, "data-choose": objective,
  "data-division": division(plan), "data-shown": JSON.stringify(plan.stages.map(({ member, start, end }) => ({ member, start, end }))) }, label);

/** Has the server plan for every objective; nothing is shown of it if another plan stands by when it answers. */
export async function showAlternatives(session) {
  const reply = await call("plan", { session: session.id });
  if (epochOf(shown) !== epochOf(session)) return;
  others = Object.fromEntries(Object.entries(reply.alternatives_json).map(([name, json]) => [name, JSON.parse(json)]));
  othersOf = epochOf(session);
  showPlan(shown);
}

/** What this machine's network does, in words. */
export async function examine() {
  fill(at("findings"), el("li", {}, "This takes some seconds…"));
  const reply = await call("doctor", {});
  fill(at("findings"), ...reply.findings.map((finding) =>
    el("li", { class: `level-${finding.level}` }, `${finding.topic}: ${finding.sentence}`,
      ...(finding.advice ? [el("div", { class: "quiet" }, finding.advice)] : []))));
}

/** What joining means, and whether it shall be. */
export function agreed(offer) {
  const download = Number(offer.download_bytes);
  return asked({
    title: `Join the session of ${offer.host}?`,
    yes: "Join",
    text: [`Model: ${offer.model}${offer.quantization ? ` (${offer.quantization})` : ""}.`,
      `This machine lends up to ${bytes(offer.lend_memory_bytes)} of memory` + (download
        ? `, and downloads up to ${bytes(download)} to ${offer.folder} (${bytes(offer.free_disk_bytes)} free).`
        : `, and has all weights in ${offer.folder}.`),
      ...(Number(offer.spare_bytes) ? [`While idle it fetches up to ${bytes(offer.spare_bytes)} more, to go on when another machine is lost.`] : []),
      ...offer.notices.map((notice) => `${notice}.`)],
  });
}
