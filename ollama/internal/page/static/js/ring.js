// The ring as a ring: members where their stages are, hops between them, and tokens that travel while some do.
import { svg } from "./dom.js";
import { blocks, seconds } from "./units.js";

const NODE = 28;
const WIDE = { width: 620, height: 450, radius: 140 }, NARROW = { width: 420, height: 420, radius: 130 };
let shape = WIDE;
const centre = () => ({ x: shape.width / 2, y: shape.height / 2 });

/** A figure of the session; members without a stage stand outside the ring. On a narrow screen labels stand below. */
export function ringOf(session, isNarrow) {
  const stages = session.stages.length ? session.stages : session.members.map((member) => ({ member: member.name }));
  shape = isNarrow ? NARROW : WIDE;
  if (stages.length === 1) shape = { ...shape, height: 200 };
  const places = new Map(stages.map((stage, i) => [stage.member, placeOf(i, stages.length)]));
  const speed = session.activity?.tokens_per_s ?? 0;
  const rest = session.members.filter((member) => !places.has(member.name));
  const height = shape.height + (rest.length ? 30 : 0);
  return svg("svg", { viewBox: `0 0 ${shape.width} ${height}`, role: "img", "aria-label": inWords(session) },
    ...session.hops.map((hop) => hopFigure(hop, places, speed)),
    ...stages.map((stage) => memberFigure(stage, session, places.get(stage.member))),
    ...(rest.length ? [svg("text", { x: centre().x, y: height - 10, class: "small" },
      `beside the ring: ${rest.map((member) => member.name).join(", ")}`)] : []));
}

function placeOf(i, count) {
  const angle = -Math.PI / 2 + (2 * Math.PI * i) / count;
  const radius = count === 1 ? 0 : shape.radius;
  return { angle, x: centre().x + radius * Math.cos(angle), y: centre().y + radius * Math.sin(angle) };
}

function hopFigure(hop, places, speed) {
  const from = places.get(hop.from), to = places.get(hop.to);
  if (!from || !to) return svg("g");
  const bent = shape.radius * (places.size === 2 ? WIDER : 1); // there and back are two bows
  const bow = `M${from.x} ${from.y} A${bent} ${bent} 0 0 1 ${to.x} ${to.y}`;
  const middle = places.size === 1 ? from : midway(from, to, places.size);
  const time = hop.measured_s || hop.predicted_s;
  const token = speed > 0 ? [svg("circle", { r: 7, class: "token" },
    svg("animateMotion", { dur: hopTime(speed), repeatCount: "indefinite", path: bow }))] : [];
  return svg("g", {}, svg("path", { d: bow, class: `hop ${hop.path}` }), ...token,
    svg("text", { x: middle.x, y: middle.y, class: "small" }, time && !isCrowded(places.size) ? seconds(time) : ""));
}

/** The table of hops has the times, where there is no room beside them. */
const isCrowded = (count) => shape === NARROW && count > 5;

const WIDER = 1.35; // of two bows, what their radius is of the ring's

/** What a token's picture takes for a hop: one of few times, so that it does not begin anew whenever the speed changes. */
const hopTime = (speed) => (speed > 20 ? "0.5s" : speed > 5 ? "1s" : "2s");

/** Inside the bow, or outside of two, so that it is not written over. */
function midway(from, to, count) {
  const angle = count === 2 ? from.angle + Math.PI / 2 : from.angle + Math.PI / count;
  const radius = count === 2 ? shape.radius * (WIDER - Math.sqrt(WIDER * WIDER - 1)) + 34 : shape.radius - 30;
  return { x: centre().x + radius * Math.cos(angle), y: centre().y + radius * Math.sin(angle) + 4 };
}

function memberFigure(stage, session, place) {
  const member = session.members.find((one) => one.name === stage.member) ?? { present: false };
  const kind = [stage.head && "head", !member.present && "gone", member.doing !== "ready" && "waits"].filter(Boolean).join(" ");
  const time = stage.measured_s || stage.predicted_s;
  const all = [stage.member + (stage.member === session.self ? " (here)" : ""),
    stage.end ? `blocks ${blocks(stage)}` : member.doing, time ? `${seconds(time)} a step` : ""].filter(Boolean);
  const lines = shape === NARROW ? [shortened(stage.member), stage.end ? blocks(stage) : member.doing] : all;
  const label = labelAt(place, lines.length, session.stages.length);
  return svg("g", { class: kind },
    svg("circle", { cx: place.x, cy: place.y, r: NODE, class: "member" }),
    svg("text", { x: place.x, y: place.y + 5, class: "initial" }, stage.member.slice(0, 2)),
    ...lines.map((line, i) => svg("text", { x: label.x, y: label.y + 17 * i, class: `${label.side} ${i ? "small" : ""}` }, line)));
}

const shortened = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);

/** Outside the ring: beside members at the left and the right, above the one on top, below the one at the bottom. */
function labelAt(place, lines, count) {
  const aside = shape === NARROW ? 0 : place.x - centre().x;
  if (Math.abs(aside) > 20) {
    return { x: place.x + Math.sign(aside) * (NODE + 10), y: place.y - 17 * (lines - 1) / 2 + 5, side: aside > 0 ? "start" : "end" };
  }
  const above = place.y < centre().y - (shape === NARROW ? 60 : 1) && count > 1;
  return { x: place.x, y: above ? place.y - NODE - 10 - 17 * (lines - 1) : place.y + NODE + 20, side: "" };
}

function inWords(session) {
  if (!session.stages.length) return `${session.members.length} members, and no ring yet`;
  const order = session.stages.map((stage) => `${stage.member} with blocks ${blocks(stage)}`).join(", then ");
  return `A ring of ${session.stages.length}: ${order}, and back to ${session.stages[0].member}`;
}
