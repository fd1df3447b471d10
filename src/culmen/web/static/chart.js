// <c-chart>: lines, steps and dots over two axes, with reference lines and a tooltip. Set its `spec` to draw it.
//
// A band's points are [x, low, high]; it has no name, and the line that it belongs to stands for it.
// spec: {label, height, x: {label, unit, domain?}, y: {label, unit, domain?}, series: [{name, points: [[x, y]], kind:
// line | step | dots | links | band, colour?, faint?, tips?}], refs: [{label, value, kind}], spots: [...], onpick?}

import { h, morph, s } from "./dom.js";
import { number } from "./format.js";
import { extent, formatter, linear, ticks } from "./scale.js";

const MARGIN = { top: 12, right: 16, bottom: 40, left: 56 };
const NEAR = 24; // pixels within which a dot is meant

const resized = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.draw();
});

class Chart extends HTMLElement {
  constructor() {
    super();
    this.at = null; // [x, y] of the pointer, in pixels
  }

  get spec() {
    return this.given;
  }

  set spec(given) {
    this.given = given;
    if (this.isConnected) this.draw();
  }

  connectedCallback() {
    resized.observe(this);
    this.onpointermove = (event) => this.point(event);
    this.onpointerleave = () => this.leave();
    this.onblur = () => this.leave();
    this.onkeydown = (event) => this.step(event);
    this.onclick = () => this.hit && this.hit.pick && this.given.onpick && this.given.onpick(this.hit.pick);
    this.draw();
  }

  disconnectedCallback() {
    resized.unobserve(this);
  }

  point(event) {
    const box = this.getBoundingClientRect();
    this.at = [event.clientX - box.left, event.clientY - box.top];
    this.draw();
  }

  leave() {
    this.at = null;
    this.draw();
  }

  /** Arrow keys move along the points of the first series that has a name. */
  step(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !this.plot) return;
    event.preventDefault();
    const xs = [...new Set(this.given.series.filter((each) => each.kind !== "dots" || this.given.series.every((one) => one.kind === "dots")).flatMap((each) => each.points.map((p) => p[0])))].sort((a, b) => a - b);
    if (!xs.length) return;
    const now = this.at ? this.plot.x.invert(this.at[0]) : xs[0];
    const near = xs.reduce((best, x, i) => (Math.abs(x - now) < Math.abs(xs[best] - now) ? i : best), 0);
    const next = xs[Math.max(0, Math.min(xs.length - 1, this.at ? near + move : near))];
    const first = this.given.series.find((each) => each.name && each.kind !== "dots") || this.given.series[0];
    const spot = first.points.find((p) => p[0] >= next) || [next, 0];
    this.at = [this.plot.x(next), this.plot.y(spot[1])];
    this.draw();
  }

  draw() {
    const width = this.clientWidth;
    if (!this.given || !width) return;
    this.plot = layout(this.given, width);
    this.hit = this.at ? found(this.given, this.plot, this.at) : null;
    const fresh = h("div", { class: "chart-body" }, picture(this.given, this.plot, this.hit), legend(this.given), tip(this.hit, width));
    if (this.firstChild) morph(this.firstChild, fresh);
    else this.appendChild(fresh);
  }
}

customElements.define("c-chart", Chart);

/** A chart; `spec.label` says in a sentence what it shows. */
export const chart = (spec) => h("c-chart", { role: "img", tabindex: "0", "aria-label": spec.label, spec });

export const colour = (place) => `var(--s${(place % 8) + 1})`;

function layout(spec, width) {
  const height = spec.height || 300;
  const points = spec.series.flatMap((each) => each.points);
  const ys = points.flatMap((p) => p.slice(1)).concat((spec.refs || []).map((ref) => ref.value));
  const box = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top + (spec.y.label ? 16 : 0), bottom: height - MARGIN.bottom };
  const yDomain = spec.y.domain || extent(ys);
  const yMarks = ticks(yDomain, Math.max(2, Math.floor((box.bottom - box.top) / 42)), spec.y.unit);
  const yFormat = formatter(spec.y.unit, yMarks);
  const widest = Math.max(0, ...yMarks.map((mark) => yFormat(mark).length));
  box.left = Math.max(40, 22 + 7 * widest);
  const xDomain = spec.x.domain || extent(points.map((p) => p[0]), 0);
  const xMarks = ticks(xDomain, Math.max(2, Math.floor((box.right - box.left) / 96)), spec.x.unit);
  return {
    width,
    height,
    box,
    x: linear(xDomain, [box.left, box.right]),
    y: linear(yDomain, [box.bottom, box.top]),
    xMarks,
    yMarks,
    xFormat: formatter(spec.x.unit, xMarks),
    yFormat,
    yFine: formatter(spec.y.unit, points.slice(0, 400).map((p) => p[1])),
    xFine: formatter(spec.x.unit, points.slice(0, 400).map((p) => p[0])),
  };
}

function picture(spec, plot, hit) {
  const { box, width, height } = plot;
  const clip = `clip-${(spec.label || "").replace(/\W+/g, "-").slice(0, 60)}-${Math.round(width)}`;
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    s("defs", {}, s("clipPath", { id: clip }, s("rect", { x: box.left, y: box.top - 4, width: Math.max(0, box.right - box.left + 4), height: box.bottom - box.top + 8 }))),
    axes(spec, plot),
    refs(spec, plot),
    s("g", { "clip-path": `url(#${clip})` }, spec.series.map((each, place) => drawn(each, place, plot))),
    hit ? marks(hit, plot) : null,
  );
}

function axes(spec, plot) {
  const { box, x, y, width, height } = plot;
  return s(
    "g",
    { class: "axes" },
    plot.yMarks.map((mark) => [
      s("line", { class: "rule", x1: box.left, x2: box.right, y1: y(mark), y2: y(mark) }),
      s("text", { x: box.left - 8, y: y(mark), dy: "0.32em", "text-anchor": "end" }, plot.yFormat(mark)),
    ]),
    plot.xMarks.map((mark) => s("text", { x: x(mark), y: box.bottom + 18, "text-anchor": "middle" }, plot.xFormat(mark))),
    s("line", { class: "base", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    s("text", { class: "axis-label", x: box.right, y: height - 4, "text-anchor": "end" }, spec.x.label),
    spec.y.label ? s("text", { class: "axis-label", x: 0, y: 12 }, spec.y.label) : null,
  );
}

/** Reference lines. Where a search began is told at its end, what it is after at its beginning: there the lines leave room; labels move apart where they would lie on one another. */
function refs(spec, plot) {
  const { box, y } = plot;
  const inside = (spec.refs || []).filter((ref) => y(ref.value) >= box.top - 1 && y(ref.value) <= box.bottom + 1);
  const sorted = [...inside].sort((a, b) => y(a.value) - y(b.value));
  const last = { start: -Infinity, end: -Infinity };
  return sorted.map((ref) => {
    const place = y(ref.value);
    const anchor = ref.kind === "start" ? "end" : "start";
    const text = Math.max(place - 5, last[anchor] + 14, box.top + 8);
    last[anchor] = text;
    return s(
      "g",
      { class: `ref ref-${ref.kind || "plain"}` },
      s("line", { x1: box.left, x2: box.right, y1: place, y2: place }),
      s("text", { x: anchor === "end" ? box.right : box.left + 6, y: text, "text-anchor": anchor }, `${ref.label} ${number(ref.value)}`),
    );
  });
}

function drawn(each, place, plot) {
  const ink = each.colour || colour(place);
  const { x, y } = plot;
  if (each.kind === "dots") {
    const d = each.points.map(([a, b]) => `M${x(a).toFixed(1)} ${y(b).toFixed(1)}h0`).join("");
    return s("path", { class: `dots ${each.faint ? "faint" : ""}`, d, stroke: ink, "stroke-width": each.size || 4 });
  }
  if (each.kind === "links") {
    const d = each.points.map(([a, b], i) => `${i % 2 ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    return s("path", { class: "links", d, stroke: ink });
  }
  if (each.kind === "band") {
    const edge = (side) => each.points.flatMap((p, i) => (i ? [[p[0], each.points[i - 1][side]], [p[0], p[side]]] : [[p[0], p[side]]])); // in steps, as its line goes
    const d = [...edge(1), ...edge(2).reverse()].map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    return s("path", { class: "band", d, fill: ink });
  }
  const d = each.points
    .map(([a, b], i) => {
      if (!i) return `M${x(a).toFixed(1)} ${y(b).toFixed(1)}`;
      return each.kind === "step" ? `H${x(a).toFixed(1)}V${y(b).toFixed(1)}` : `L${x(a).toFixed(1)} ${y(b).toFixed(1)}`;
    })
    .join("");
  return s("path", { class: `line ${each.faint ? "faint" : ""}`, d, stroke: ink, "data-series": each.name });
}

/** What the pointer is on: the nearest dot, or every line's value at that x. */
function found(spec, plot, [px, py]) {
  const { x, y, box } = plot;
  if (px < box.left - 8 || px > box.right + 8 || py > box.bottom + 20) return null;
  let best = null;
  spec.series.forEach((each, place) => {
    if (!each.tips) return;
    each.points.forEach(([a, b], i) => {
      const far = Math.hypot(x(a) - px, y(b) - py);
      if (far < NEAR && (!best || far < best.far)) best = { far, x: a, rows: [], spots: [[a, b, each.colour || colour(place)]], title: each.tips(i), pick: each.picks && each.picks(i) };
    });
  });
  if (best) return { ...best, left: x(best.x) };
  const lines = spec.series.filter((each) => !each.tips && each.kind !== "links" && each.kind !== "dots" && each.points.length && each.name);
  if (!lines.length) return null;
  const at = Math.max(x.domain[0], Math.min(x.domain[1], x.invert(px)));
  const rows = [];
  const spots = [];
  for (const each of lines) {
    const point = nearest(each, at);
    if (!point) continue;
    const ink = each.colour || colour(spec.series.indexOf(each));
    rows.push([each.name, plot.yFine(point[1]), ink]);
    spots.push([each.kind === "step" ? at : point[0], point[1], ink]);
  }
  if (!rows.length) return null;
  const shown = lines.every((each) => each.kind === "step") ? at : spots[0][0];
  const label = spec.x.unit === "count" ? plot.xFine(Math.round(shown)) : plot.xFine(shown);
  return { left: x(shown), title: [`${spec.x.label}: ${label}`], rows: rows.slice(0, 12), spots };
}

function nearest(each, at) {
  const { points } = each;
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (points[middle][0] <= at) low = middle;
    else high = middle - 1;
  }
  if (points[low][0] > at && each.kind === "step") return null;
  const next = points[low + 1];
  return each.kind !== "step" && next && Math.abs(next[0] - at) < Math.abs(points[low][0] - at) ? next : points[low];
}

function marks(hit, plot) {
  return s(
    "g",
    { class: "hit" },
    s("line", { x1: hit.left, x2: hit.left, y1: plot.box.top, y2: plot.box.bottom }),
    hit.spots.map(([a, b, ink]) => s("circle", { cx: plot.x(a), cy: plot.y(b), r: 4, fill: ink })),
  );
}

function legend(spec) {
  const named = spec.series.filter((each) => each.name && !each.hidden);
  if (named.length < 2) return null;
  const swatch = (each) => h("span", { class: "swatch", style: { background: each.colour || colour(spec.series.indexOf(each)) } });
  return h("ul", { class: "legend" }, named.map((each) => h("li", {}, swatch(each), each.name)));
}

function tip(hit, width) {
  if (!hit) return h("div", { class: "tip", hidden: true });
  const right = hit.left > width / 2;
  const style = right ? { right: `${width - hit.left + 12}px` } : { left: `${hit.left + 12}px` };
  const rows = (hit.rows || []).map(([name, value, ink]) =>
    h("div", { class: "tip-row" }, h("span", { class: "swatch", style: { background: ink } }), h("span", {}, name), h("b", {}, value)),
  );
  return h("div", { class: "tip", style }, [hit.title].flat().map((line) => h("div", {}, line)), rows);
}
