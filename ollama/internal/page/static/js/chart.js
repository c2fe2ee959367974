// Tokens a second over the last minutes.
const KEPT_S = 300, EVERY_MS = 1000;

const ago = (time) => { const minutes = Math.round((Date.now() / 1000 - time) / 60); return minutes ? `−${minutes} min` : "now"; };

/** Draws into an element what `now` says every second. */
export function chart(element, now) {
  const times = [], values = [];
  const ink = () => getComputedStyle(element).color;
  const axis = { stroke: ink, grid: { stroke: () => "rgb(128 128 128 / .25)" } };
  const plot = new window.uPlot({
    width: element.clientWidth || 320, height: 130, legend: { show: false }, cursor: { show: false },
    scales: { x: { range: () => { const now = Date.now() / 1000; return [now - KEPT_S, now]; } }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
    axes: [{ ...axis, splits: () => [5, 4, 3, 2, 1, 0].map((minutes) => Date.now() / 1000 - 60 * minutes), values: (_, ticks) => ticks.map(ago) }, { ...axis, size: 38 }],
    series: [{}, { stroke: ink, width: 2, points: { show: false }, fill: "rgb(180 84 26 / .2)" }],
  }, [times, values], element);
  new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 130 })).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw());
  setInterval(() => {
    times.push(Date.now() / 1000);
    values.push(now());
    while (times[0] < Date.now() / 1000 - KEPT_S) { times.shift(); values.shift(); }
    plot.setData([times, values]);
  }, EVERY_MS);
}
