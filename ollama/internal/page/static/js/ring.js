// The ring as a ring: members where their stages are, hops between them, and tokens that travel while some do.
import { svg } from "./dom.js";
import { blocks, seconds } from "./units.js";

const NODE = 28;
const WIDE = { width: 620, height: 450, radius: 140, most: 8 }, NARROW = { width: 420, height: 420, radius: 130, most: 2 };
const ROW = 86; // between members that stand below one another
let shape = WIDE;
const centre = () => ({ x: shape.width / 2, y: shape.height / 2 });

/** A figure of the session; members without a stage stand outside the ring. On a narrow screen labels stand below; more
 * members than a circle has room for stand at two sides, the head first at the right, with labels within the ring. */
export function ringOf(session, isNarrow) {
  const stages = session.stages.length ? session.stages : session.members.map((member) => ({ member: member.name }));
  shape = shapeFor(stages.length, isNarrow ? NARROW : WIDE);
  const places = new Map(stages.map((stage, i) => [stage.member, placeOf(i, stages.length)]));
  const speed = session.activity?.tokens_per_s ?? 0;
  const rest = session.members.filter((member) => !places.has(member.name));
  const height = shape.height + (rest.length ? 30 : 0);
  return svg("svg", { viewBox: `0 0 ${shape.width} ${height}`, class: shape.rows ? "tall" : false, role: "img", "aria-label": inWords(session) },
    ...session.hops.map((hop) => hopFigure(hop, places, speed)),
    ...stages.map((stage) => memberFigure(stage, session, places.get(stage.member))),
    ...(rest.length ? [svg("text", { x: centre().x, y: height - 10, class: "small" },
      `beside the ring: ${rest.map((member) => member.name).join(", ")}`)] : []));
}

function shapeFor(count, usual) {
  if (count === 1) return { ...usual, height: 200 };
  if (count <= usual.most) return usual;
  const rows = Math.ceil(count / 2);
  return { ...usual, rows, radius: usual.width / 2 - NODE - 17, height: 4 * NODE + ROW * (rows - 1) + 16 };
}

function placeOf(i, count) {
  if (shape.rows) return placeAside(i, count);
  const angle = -Math.PI / 2 + (2 * Math.PI * i) / count;
  const radius = count === 1 ? 0 : shape.radius;
  return { angle, x: centre().x + radius * Math.cos(angle), y: centre().y + radius * Math.sin(angle) };
}

/** Down at the right and up at the left; who is alone at the left is in its middle. */
function placeAside(i, count) {
  const isRight = i < shape.rows;
  const here = isRight ? i : count - 1 - i, last = (isRight ? shape.rows : count - shape.rows) - 1;
  const way = last ? here / last - 1 / 2 : 0;
  return { x: centre().x + (isRight ? shape.radius : -shape.radius), y: centre().y + ROW * (shape.rows - 1) * way };
}

function hopFigure(hop, places, speed) {
  const from = places.get(hop.from), to = places.get(hop.to);
  if (!from || !to) return svg("g");
  const bow = shape.rows && from.x !== to.x ? vault(from, to) : arc(from, to, places.size);
  const middle = places.size === 1 ? from : shape.rows ? within(from, to) : midway(from, to, places.size);
  const time = hop.measured_s || hop.predicted_s;
  const token = speed > 0 ? [svg("circle", { r: 7, class: "token" },
    svg("animateMotion", { dur: hopTime(speed), repeatCount: "indefinite", path: bow }))] : [];
  return svg("g", {}, svg("path", { d: bow, class: `hop ${hop.path}` }), ...token,
    svg("text", { x: middle.x, y: middle.y, class: "small" }, time ? seconds(time) : ""));
}

/** Of a circle as wide as the ring; where there are two members, there and back are two bows. */
function arc(from, to, count) {
  const bent = shape.radius * (count === 2 ? WIDER : 1);
  return `M${from.x} ${from.y} A${bent} ${bent} 0 0 1 ${to.x} ${to.y}`;
}

/** From side to side, over the labels of the uppermost or under those of the lowest. */
function vault(from, to) {
  const away = upOrDown(from, to) * VAULT;
  return `M${from.x} ${from.y} C${from.x} ${from.y + away} ${to.x} ${to.y + away} ${to.x} ${to.y}`;
}

/** At which end of the ring two of different sides are: -1 at the upper one, else 1. */
const upOrDown = (from, to) => Math.sign(from.y - centre().y || to.y - centre().y);

const VAULT = 80; // three quarters of it are seen

const WIDER = 1.35; // of two bows, what their radius is of the ring's

/** What a token's picture takes for a hop: one of few times, so that it does not begin anew whenever the speed changes. */
const hopTime = (speed) => (speed > 20 ? "0.5s" : speed > 5 ? "1s" : "2s");

/** Inside a hop of two sides, between the labels of who it is between. */
function within(from, to) {
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 + 4 };
  if (from.x === to.x) return { ...middle, x: from.x + Math.sign(centre().x - from.x) * 34 };
  return { ...middle, y: middle.y + upOrDown(from, to) * (VAULT / 2) };
}

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
  const lines = isNarrow() ? [shortened(stage.member), stage.end ? blocks(stage) : member.doing] : all;
  const label = labelAt(place, lines.length, session.stages.length);
  return svg("g", { class: kind },
    svg("circle", { cx: place.x, cy: place.y, r: NODE, class: "member" }),
    svg("text", { x: place.x, y: place.y + 5, class: "initial" }, stage.member.slice(0, 2)),
    ...lines.map((words, i) => svg("text", { x: label.x, y: label.y + line() * i, class: `${label.side} ${i ? "small" : ""}` }, words)));
}

const shortened = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);

const isNarrow = () => shape.width === NARROW.width;
const line = () => (isNarrow() ? 19 : 17); // letters are larger there

/** Outside the ring: beside members at the left and the right, above the one on top, below the one at the bottom. */
function labelAt(place, lines, count) {
  if (shape.rows) {
    const isRight = place.x > centre().x;
    return { x: place.x + (isRight ? -1 : 1) * (NODE + 10), y: place.y - line() * (lines - 1) / 2 + 5, side: isRight ? "end" : "start" };
  }
  const aside = isNarrow() ? 0 : place.x - centre().x;
  if (Math.abs(aside) > 20) {
    return { x: place.x + Math.sign(aside) * (NODE + 10), y: place.y - line() * (lines - 1) / 2 + 5, side: aside > 0 ? "start" : "end" };
  }
  const above = place.y < centre().y - (isNarrow() ? 60 : 1) && count > 1;
  return { x: place.x, y: above ? place.y - NODE - 10 - line() * (lines - 1) : place.y + NODE + 20, side: "" };
}

function inWords(session) {
  if (!session.stages.length) return `${session.members.length} members, and no ring yet`;
  const order = session.stages.map((stage) => `${stage.member} with blocks ${blocks(stage)}`).join(", then ");
  return `A ring of ${session.stages.length}: ${order}, and back to ${session.stages[0].member}`;
}
