// <c-chart>: lines, steps and dots over two axes, with reference lines and a tooltip. Set its `spec` to draw it.
//
// A band's points are [x, low, high]; it has no name, and the line of its colour stands for it. A rug's points are [x]: marks
// at the foot, for what has no height. Dots with `labels` carry these above them.
// Dots with `edge` that lie beyond the axes stand as arrowheads at the edge; an axis with `marks` ({at, text, more?}) has
// these in place of round numbers; a ref of the x-axis stands upright, and may say which side of it is forbidden.
// spec: {label, key?, height, x: {label, unit, domain?, marks?}, y: {label, unit, domain?, marks?}, series: [{name, points: [[x, y]],
// kind: line | step | dots | links | band | rug, colour?, faint?, strong?, edge?, labels?, tips?}],
// refs: [{label, value, kind, axis?, forbidden?}], onpick?, below?}
// `below(clipped)` is the note under it; `clipped`: dots are shown at the edge.
//
// What a person chose to see (a part of the axes, heights as logarithms, lines left out) is the chart's view; the page's
// address keeps it under the chart's key. A brush, or + and -, show a part; a double click, Escape or 0 everything.

import { menu } from "./chart_files.js";
import { h, morph, s } from "./dom.js";
import { number } from "./format.js";
import { extent, formatter, linear, logarithmic, powered, powers, signedPowers, ticks } from "./scale.js";

const MARGIN = { top: 12, right: 16, bottom: 40, left: 56 };
const HEAD = 5; // pixels from an arrowhead's tip to its base
const NEAR = 24; // pixels within which a dot is meant
const RING = 9; // radius of a label's ring
const RUG = 9; // pixels that a rug's marks are high
const BRUSH = 6; // pixels that a brush has at least; along an axis where it has less, everything stays
const STEP = 0.7; // of what is shown, after one press of +
const PLAIN = { zoom: null, log: false, off: [] };

const resized = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.draw();
});

class Chart extends HTMLElement {
  constructor() {
    super();
    this.at = null; // [x, y] of the pointer, in pixels
    this.from = null; // where a brush began
    this.brushed = false;
    this.view = PLAIN;
  }

  get spec() {
    return this.given;
  }

  set spec(given) {
    if (!this.given || key(this.given) !== key(given)) this.view = read(key(given));
    this.given = given;
    if (this.isConnected) this.draw();
  }

  connectedCallback() {
    resized.observe(this);
    this.onpointermove = (event) => this.point(event);
    this.onpointerleave = () => this.from || this.leave();
    this.onpointerdown = (event) => this.begin(event);
    this.onpointerup = (event) => this.end(event);
    this.onblur = () => this.leave();
    this.onkeydown = (event) => this.press(event);
    this.ondblclick = (event) => this.over(event) && this.change({ zoom: null });
    this.onclick = () => this.pick();
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
    this.at = this.from = null;
    this.draw();
  }

  pick() {
    if (!this.brushed && this.hit && this.hit.pick && this.given.onpick) this.given.onpick(this.hit.pick);
    this.brushed = false;
  }

  /** Whether an event is on the plot itself, neither on the legend nor on what opens above it. */
  over(event) {
    const box = this.getBoundingClientRect();
    return Boolean(this.plot) && event.clientY - box.top <= this.plot.box.bottom && !event.target.closest("details");
  }

  begin(event) {
    if (event.pointerType === "touch" || event.button || !this.over(event)) return; // a finger scrolls the page
    const box = this.getBoundingClientRect();
    this.from = [event.clientX - box.left, event.clientY - box.top];
    this.setPointerCapture(event.pointerId);
  }

  end(event) {
    const { from, plot } = this;
    this.from = null;
    if (!from) return;
    const box = this.getBoundingClientRect();
    const to = [event.clientX - box.left, event.clientY - box.top];
    const wide = Math.abs(to[0] - from[0]) >= BRUSH;
    const high = Math.abs(to[1] - from[1]) >= BRUSH;
    if (!wide && !high) return this.draw();
    this.brushed = true; // its end picks nothing
    const part = (scale, a, b) => [scale.invert(a), scale.invert(b)].sort((one, other) => one - other).map((value, i) => (i ? Math.min(value, scale.domain[1]) : Math.max(value, scale.domain[0])));
    this.change({ zoom: { x: wide ? part(plot.x, from[0], to[0]) : plot.x.domain, y: high ? part(plot.y, from[1], to[1]) : plot.y.domain } });
  }

  /** Show something else, and keep it in the page's address. */
  change(view) {
    this.view = { ...this.view, ...view };
    this.dispatchEvent(new CustomEvent("chartview", { bubbles: true, detail: { key: key(this.given), text: written(this.view) } }));
    this.draw();
  }

  press(event) {
    if (event.target !== this || !this.plot) return;
    const { x, y } = this.plot;
    const around = (scale, share) => {
      const [low, high] = [scale.domain[0], scale.domain[1]].map(scale);
      const [middle, half] = [(low + high) / 2, ((high - low) / 2) * share];
      return [scale.invert(middle - half), scale.invert(middle + half)];
    };
    if (event.key === "+" || event.key === "-") this.change({ zoom: { x: around(x, event.key === "+" ? STEP : 1 / STEP), y: around(y, event.key === "+" ? STEP : 1 / STEP) } });
    else if (event.key === "0" || event.key === "Escape") this.change({ zoom: null });
    else if (event.key === "l" && logs(this.given) !== null) this.change({ log: !this.view.log, zoom: null });
    else return this.step(event);
    event.preventDefault();
  }

  /** Arrow keys move along the points of the first series that has a name. */
  step(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !this.plot) return;
    event.preventDefault();
    const { series } = this.shown;
    const lines = series.filter((each) => each.name && !pointed(each));
    const xs = [...new Set((lines.length ? lines : series.filter(pointed)).flatMap((each) => each.points.map((p) => p[0])))].sort((a, b) => a - b);
    if (!xs.length) return;
    const now = this.at ? this.plot.x.invert(this.at[0]) : xs[0];
    const near = xs.reduce((best, x, i) => (Math.abs(x - now) < Math.abs(xs[best] - now) ? i : best), 0);
    const next = xs[Math.max(0, Math.min(xs.length - 1, this.at ? near + move : near))];
    const first = lines[0] || series.find((each) => pointed(each) && each.points.some((p) => p[0] === next)) || series[0];
    const spot = first.points.find((p) => p[0] >= next) || [next, 0];
    this.at = [this.plot.x(next), this.plot.y(spot[1])];
    this.draw();
  }

  draw() {
    const width = this.clientWidth;
    if (!this.given || !width) return;
    this.shown = chosen(this.given, this.view);
    this.plot = layout(this.shown, width, this.view);
    this.hit = this.at && !this.from ? found(this.shown, this.plot, this.at) : null;
    const fresh = h("div", { class: "chart-body" }, picture(this.shown, this.plot, this.hit, this.from && this.at && [this.from, this.at]), h("div", { class: "chart-foot" }, legend(this), tools(this)), below(this), tip(this.hit, width));
    if (this.firstChild) morph(this.firstChild, fresh);
    else this.appendChild(fresh);
  }
}

customElements.define("c-chart", Chart);

/** A chart; `spec.label` says in a sentence what it shows. */
export const chart = (spec) => h("c-chart", { role: "figure", tabindex: "0", "aria-label": spec.label, spec });

export const colour = (place) => `var(--s${(place % 8) + 1})`;

const key = (spec) => (spec.key || `${spec.y.label || "y"} by ${spec.x.label}`).replace(/\W+/g, "-").toLowerCase();

/** A view as the address has it, `log,off=name,x=low:high,y=low:high`; and read from there. */
function written({ zoom, log, off }) {
  const pair = (name) => `${name}=${zoom[name].map((value) => Number(value.toPrecision(6))).join(":")}`;
  return [log ? "log" : "", ...off.map((name) => `off=${encodeURIComponent(name)}`), ...(zoom ? [pair("x"), pair("y")] : [])].filter(Boolean).join(",");
}

function read(name) {
  const text = new URLSearchParams(location.hash.split("?")[1] || "").get(`view.${name}`);
  const view = { ...PLAIN, off: [] };
  const zoom = {};
  for (const piece of (text || "").split(",")) {
    const [word, value] = piece.split("=");
    if (word === "log") view.log = true;
    if (word === "off" && value) view.off.push(decodeURIComponent(value));
    if (word === "x" || word === "y") zoom[word] = (value || "").split(":").map(Number);
  }
  const whole = ["x", "y"].every((axis) => zoom[axis] && zoom[axis].length === 2 && zoom[axis].every(Number.isFinite) && zoom[axis][0] < zoom[axis][1]);
  return whole ? { ...view, zoom } : view;
}

/** Whether a series is read by pointing at one of its points. */
const pointed = (each) => each.kind === "dots" || each.kind === "rug";

/** The heights of lines and dots: intervals may reach below zero where what they belong to does not. */
const heights = (spec) => spec.series.filter((each) => !["band", "links", "rug"].includes(each.kind)).flatMap((each) => each.points.map((p) => p[1]));

/** The unit of the logarithms of heights: 0 if all are above zero; else a tenth of the middle height, if some lie far beyond; null without logarithms. */
function logs(spec) {
  const sizes = heights(spec).map(Math.abs).sort((a, b) => a - b);
  if (spec.y.unit === "percent" || !sizes.length) return null;
  const middle = sizes[sizes.length >> 1];
  return heights(spec).every((value) => value > 0) ? 0 : middle && sizes.at(-1) > 10 * middle ? middle / 10 : null;
}

/** The spec as the view wants it: each series with the colour that it has among all, those left out without points. */
function chosen(spec, view) {
  const series = spec.series.map((each, place) => ({ ...each, colour: each.colour || colour(place) }));
  const gone = new Set(series.filter((each) => view.off.includes(each.name)).map((each) => each.colour));
  const kept = series.filter((each) => !(each.name ? view.off.includes(each.name) : gone.has(each.colour)));
  const unit = view.log ? logs(spec) : null;
  const log = unit !== null;
  const least = unit === 0 ? heights(spec).reduce((low, value) => Math.min(low, value), Infinity) : -Infinity;
  const cut = (each) => ({ ...each, points: each.points.map(([x, ...ys]) => [x, ...ys.map((value) => Math.max(least, value))]) });
  return { ...spec, series: log ? kept.map(cut) : kept, log, unit, refs: (spec.refs || []).filter((ref) => unit !== 0 || ref.value > 0) };
}

function layout(spec, width, view) {
  const height = spec.height || 300;
  const points = spec.series.flatMap((each) => each.points);
  const ys = points.flatMap((p) => p.slice(1)).concat(spec.refs.filter((ref) => ref.axis !== "x").map((ref) => ref.value));
  const box = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top + (spec.y.label ? 16 : 0), bottom: height - MARGIN.bottom };
  const { zoom } = view;
  const [to, back] = powered(spec.unit);
  const yDomain = zoom ? zoom.y : spec.log ? extent(ys.map(to)).map(back) : spec.y.domain || extent(ys);
  const yWanted = Math.max(2, Math.floor((box.bottom - box.top) / 42));
  const yMarks = spec.y.marks ? spec.y.marks.map((mark) => mark.at) : spec.unit ? signedPowers(yDomain, yWanted, spec.unit) : spec.log ? powers(yDomain, yWanted) : ticks(yDomain, yWanted, spec.y.unit);
  const yFormat = spec.y.marks ? (at) => spec.y.marks.find((mark) => mark.at === at).text : spec.unit ? (mark) => formatter(spec.y.unit, [mark])(mark) : formatter(spec.y.unit, yMarks);
  const widest = Math.max(0, ...yMarks.map((mark) => yFormat(mark).length));
  box.left = Math.max(40, 22 + 7 * widest);
  const xDomain = zoom ? zoom.x : spec.x.domain || extent(points.map((p) => p[0]), 0);
  const xMarks = spec.x.marks ? spec.x.marks.map((mark) => mark.at) : ticks(xDomain, Math.max(3, Math.floor((box.right - box.left) / 96)), spec.x.unit);
  return {
    width,
    height,
    box,
    x: linear(xDomain, [box.left, box.right]),
    y: (spec.log ? logarithmic : linear)(yDomain, [box.bottom, box.top], spec.unit),
    xMarks,
    yMarks,
    xFormat: spec.x.marks ? (at) => spec.x.marks.find((mark) => mark.at === at).text : formatter(spec.x.unit, xMarks),
    whole: !zoom,
    yFormat,
    yFine: formatter(spec.y.unit, points.slice(0, 400).flatMap((p) => p.slice(1, 2))),
    xFine: formatter(spec.x.unit, points.slice(0, 400).map((p) => p[0])),
  };
}

function picture(spec, plot, hit, brush) {
  const { box, width, height } = plot;
  const levels = [refs(spec, plot)].flat().filter(Boolean);
  const labels = levels.flatMap((level) => [...level.querySelectorAll("text")].map((text) => s("g", { class: level.getAttribute("class") }, text))); // above the dots
  const clip = `clip-${(spec.label || "").replace(/\W+/g, "-").slice(0, 60)}-${Math.round(width)}`;
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    s("defs", {}, s("clipPath", { id: clip }, s("rect", { x: box.left, y: box.top - 4, width: Math.max(0, box.right - box.left + 4), height: box.bottom - box.top + 8 }))),
    axes(spec, plot),
    levels,
    s("g", { "clip-path": `url(#${clip})` }, spec.series.map((each) => drawn(each, plot))),
    labels,
    hit ? marks(hit, plot) : null,
    brush ? brushed(brush, plot) : null,
  );
}

function brushed([a, b], { box }) {
  const side = (i, low, high) => {
    const [from, to] = [a[i], b[i]].sort((one, other) => one - other).map((value) => Math.max(low, Math.min(high, value)));
    return to - from < BRUSH ? [low, high - low] : [from, to - from];
  };
  const [[x, width], [y, height]] = [side(0, box.left, box.right), side(1, box.top, box.bottom)];
  return s("rect", { class: "brush", x, y, width, height });
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
    spec.x.marks ? named(spec.x.marks, plot) : plot.xMarks.map((mark) => s("text", { x: x(mark), y: box.bottom + 18, "text-anchor": "middle" }, plot.xFormat(mark))),
    s("line", { class: "base", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    s("text", { class: "axis-label", x: box.right, y: height - 4, "text-anchor": "end" }, spec.x.label),
    spec.y.label ? s("text", { class: "axis-label", x: 0, y: 12 }, spec.y.label) : null,
  );
}

/** Upright axes with their names and what they span; names in two rows and nothing else where they would touch. */
function named(marks, { box, x }) {
  const room = x(marks[1] ? marks[1].at : marks[0].at + 1) - x(marks[0].at);
  const narrow = marks.some(({ text, more }) => 7 * Math.max(text.length, (more || "").length) > room);
  return marks.filter(({ at }) => x(at) >= box.left && x(at) <= box.right).map(({ at, text, more }, i) => [
    s("line", { class: "rule", x1: x(at), x2: x(at), y1: box.top, y2: box.bottom }),
    s("text", { x: x(at), y: box.bottom + 18 + (narrow && i % 2 ? 15 : 0), "text-anchor": "middle" }, text),
    narrow || !more ? null : s("text", { x: x(at), y: box.bottom + 33, "text-anchor": "middle" }, more)]);
}

/** A limit across: a line upright, its label at the foot, and what it forbids in a tint. */
function upright(ref, { box, x }) {
  const place = x(ref.value);
  if (place < box.left - 1 || place > box.right + 1) return null;
  const right = place < (box.left + box.right) / 2;
  return s("g", { class: `ref ref-${ref.kind || "plain"}` }, s("line", { x1: place, x2: place, y1: box.top, y2: box.bottom }),
    s("text", { x: place + (right ? 6 : -6), y: box.bottom - 8, "text-anchor": right ? "start" : "end" }, `${ref.label} ${number(ref.value)}`));
}

function forbidden(ref, { box, x, y }) {
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const place = ref.axis === "x" ? clamp(x(ref.value), box.left, box.right) : clamp(y(ref.value), box.top, box.bottom);
  const [from, to] = ref.axis === "x" ? (ref.forbidden === "above" ? [place, box.right] : [box.left, place]) : ref.forbidden === "above" ? [box.top, place] : [place, box.bottom];
  const side = ref.axis === "x" ? { x: from, width: to - from, y: box.top, height: box.bottom - box.top } : { x: box.left, width: box.right - box.left, y: from, height: to - from };
  return s("rect", { class: "forbidden", ...side });
}

/** Reference lines. Where a search began is told at its end, what it is after at its beginning: there the lines leave room; labels move apart where they would lie on one another. */
function refs(spec, plot) {
  const { box, y } = plot;
  const level = spec.refs.filter((ref) => ref.axis !== "x");
  const inside = level.filter((ref) => y(ref.value) >= box.top - 1 && y(ref.value) <= box.bottom + 1);
  const sorted = [...inside].sort((a, b) => y(a.value) - y(b.value));
  const last = { start: -Infinity, end: -Infinity };
  const across = spec.refs.filter((ref) => ref.axis === "x").map((ref) => upright(ref, plot));
  return spec.refs.filter((ref) => ref.forbidden).map((ref) => forbidden(ref, plot)).concat(across, sorted.map((ref) => {
    const place = y(ref.value);
    const anchor = ref.kind === "initial" ? "end" : "start";
    const text = Math.max(place - 5, last[anchor] + 14, box.top + 8);
    last[anchor] = text;
    return s(
      "g",
      { class: `ref ref-${ref.kind || "plain"}` },
      s("line", { x1: box.left, x2: box.right, y1: place, y2: place }),
      s("text", { x: anchor === "end" ? box.right : box.left + 6, y: text, "text-anchor": anchor }, `${ref.label} ${number(ref.value)}`),
    );
  }));
}

/** Where a dot is drawn, and to which side it lies beyond the axes: [x, y, right, down]. */
function placed(each, [a, b], { x, y, box, whole }) {
  const [across, up] = [x(a), y(b)];
  if (!each.edge || !whole) return [across, up, 0, 0];
  const side = (value, low, high) => (value < low - 0.5 ? -1 : value > high + 0.5 ? 1 : 0);
  const [right, down] = [side(across, box.left, box.right), side(up, box.top, box.bottom)];
  const inner = (value, low, high, beyond) => (beyond ? Math.max(low, Math.min(high, value)) - beyond * HEAD : value);
  return [inner(across, box.left, box.right, right), inner(up, box.top, box.bottom, down), right, down];
}

/** The note under the chart. */
function below({ given, shown, plot }) {
  const isOut = (each) => each.edge && each.points.some((point) => placed(each, point, plot).slice(2).some(Boolean));
  const text = given.below ? given.below(shown.series.some(isOut)) : "";
  return text ? h("p", { class: "note below" }, text) : null;
}

/** Arrowheads at the edge for the dots that lie beyond it. */
function heads(each, plot) {
  const out = each.points.map((point) => placed(each, point, plot)).filter(([, , right, down]) => right || down);
  if (!out.length) return null;
  const d = out.map(([a, b, right, down]) => {
    const size = Math.hypot(right, down);
    const [u, v] = [(HEAD * right) / size, (HEAD * down) / size];
    const tip = (p, q) => `${(a + p).toFixed(1)} ${(b + q).toFixed(1)}`;
    return `M${tip(u, v)}L${tip(-u - v, -v + u)}L${tip(-u + v, -v - u)}Z`;
  }).join("");
  return s("path", { class: `edge ${each.faint ? "faint" : ""}`, d, fill: each.colour });
}

function drawn(each, plot) {
  const ink = each.colour;
  const { x, y } = plot;
  if (each.labels) return numbered(each, plot);
  if (each.kind === "dots") {
    const inside = each.points.map((point) => placed(each, point, plot)).filter(([, , right, down]) => !right && !down);
    const d = inside.map(([a, b]) => `M${a.toFixed(1)} ${b.toFixed(1)}h0`).join("");
    return [s("path", { class: `dots ${each.faint ? "faint" : ""}`, d, stroke: ink, "stroke-width": each.size || 4 }), heads(each, plot)];
  }
  if (each.kind === "rug") {
    const d = each.points.map(([a]) => `M${x(a).toFixed(1)} ${plot.box.bottom}v${-RUG}`).join("");
    return s("path", { class: "rug", d, stroke: ink });
  }
  if (each.kind === "links") {
    const d = each.points.map(([a, b], i) => `${i % 2 ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    return s("path", { class: `links ${each.strong ? "strong" : ""}`, d, stroke: ink });
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

/** Dots with a label in a ring above each, or below where there is no room; rings do not cover one another. */
function numbered(each, { x, y, box }) {
  const rings = [];
  const free = (a, b) => b >= box.top + RING && b <= box.bottom - RING && rings.every(([c, d]) => Math.hypot(a - c, b - d) > 2 * RING);
  return s("g", { class: "numbered" }, each.points.map(([a, b], i) => {
    const [across, up] = [x(a), y(b)];
    const heights = Array.from({ length: 24 }, (_, n) => up - 2 * RING - n * RING).concat(Array.from({ length: 24 }, (_, n) => up + 2 * RING + n * RING));
    const beside = Math.max(box.left + RING, Math.min(box.right - RING, across));
    const at = [beside, heights.find((height) => free(beside, height)) ?? up - 2 * RING];
    rings.push(at);
    return [s("line", { x1: across, x2: beside, y1: up, y2: at[1], stroke: each.colour }), s("circle", { class: "spot", cx: across, cy: up, r: 3, fill: each.colour }),
      s("circle", { class: "ring", cx: at[0], cy: at[1], r: RING, stroke: each.colour }), s("text", { x: at[0], y: at[1], dy: "0.35em", "text-anchor": "middle" }, each.labels[i])];
  }));
}

/** What the pointer is on: the nearest dot, and every line's value at that x. */
function found(spec, plot, [px, py]) {
  const { x, y, box } = plot;
  if (px < box.left - 8 || px > box.right + 8 || py > box.bottom + 20) return null;
  let best = null;
  spec.series.forEach((each) => {
    if (!each.tips) return;
    each.points.forEach(([a, b], i) => {
      const [across, up] = each.kind === "rug" ? [x(a), box.bottom - RUG] : placed(each, [a, b], plot);
      const far = Math.hypot(across - px, up - py);
      if (far < NEAR && (!best || far <= best.far)) best = { far, x: x.invert(across), spot: [x.invert(across), y.invert(up), each.colour], each, i };
    });
  });
  const beside = values(spec, plot, best ? best.x : Math.max(x.domain[0], Math.min(x.domain[1], x.invert(px))));
  if (!best) return beside;
  const { each, i } = best;
  return { left: x(best.x), title: each.tips(i), pick: each.picks && each.picks(i), rows: beside ? beside.rows : [], spots: [best.spot, ...(beside ? beside.spots : [])] };
}

/** What every line says at a place of the x-axis. */
function values(spec, plot, at) {
  const { x } = plot;
  const lines = spec.series.filter((each) => !each.tips && each.kind !== "links" && !pointed(each) && each.points.length && each.name);
  const rows = [];
  const spots = [];
  for (const each of lines) {
    const point = nearest(each, at);
    if (!point) continue;
    const ink = each.colour;
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

/** Names with their colours; a press leaves a series out, or brings it back. */
function legend(element) {
  const { given, view } = element;
  const named = given.series.filter((each) => each.name && !each.hidden);
  if (named.length < 2) return null;
  const swatch = (each) => h("span", { class: "swatch", style: { background: each.colour || colour(given.series.indexOf(each)) } });
  const press = (name) => element.change({ off: view.off.includes(name) ? view.off.filter((each) => each !== name) : [...view.off, name] });
  return h("ul", { class: "legend" }, named.map((each) => h("li", {},
    h("button", { type: "button", "aria-pressed": String(!view.off.includes(each.name)), title: view.off.includes(each.name) ? "Show it again" : "Leave it out", onclick: () => press(each.name) }, swatch(each), each.name))));
}

function tools(element) {
  const { given, view } = element;
  const button = (text, title, pressed, onclick) => h("button", { type: "button", title, "aria-pressed": pressed, onclick }, text);
  return h("div", { class: "chart-tools", role: "group", "aria-label": "Of this chart" },
    view.zoom ? button("Show all", "Show everything again (double click, or 0)", null, () => element.change({ zoom: null })) : null,
    logs(given) !== null ? button("Log", "Heights as logarithms (L)", String(view.log), () => element.change({ log: !view.log, zoom: null })) : null,
    menu(element));
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
