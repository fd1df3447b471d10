// <c-family>: every candidate as a dot on a canvas, 20,000 of them at once. Set its `spec` to draw it.
//
// spec: {label, doc (as `culmen.web.pages.candidates.lineage`), domain, groups: {name: place of each} or null, names,
// colours, tell(place), onpick(place)}. Those without a score lie in a strip at the foot.

import { linear, ticks } from "./scale.js";
import { h } from "./dom.js";
import { number } from "./format.js";

const [HEIGHT, STRIP, LEFT, TOP] = [420, 26, 56, 12];
const NEAR = 14; // pixels within which a dot is meant

class Family extends HTMLElement {
  get spec() {
    return this._spec;
  }

  set spec(given) {
    this._spec = given;
    if (this.isConnected) this.draw();
  }

  connectedCallback() {
    if (!this.canvas) this.begin();
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this);
  }

  disconnectedCallback() {
    this.watch.disconnect();
  }

  begin() {
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.tip = h("div", { class: "family-tip", role: "status", hidden: true });
    this.append(this.canvas, this.tip);
    this.at = -1;
    this.view = null;
    this.canvas.addEventListener("pointermove", (event) => this.moved(event));
    this.canvas.addEventListener("pointerleave", () => this.drag || this.mark(-1));
    this.canvas.addEventListener("pointerdown", (event) => { this.drag = { x: event.offsetX, y: event.offsetY, view: this.shown(), far: false }; });
    this.canvas.addEventListener("pointerup", (event) => this.released(event));
    this.canvas.addEventListener("dblclick", () => this.see(null));
    this.canvas.addEventListener("wheel", (event) => { if (event.ctrlKey || event.shiftKey || this.view) { event.preventDefault(); this.zoom(event.deltaY < 0 ? 0.8 : 1.25, event.offsetX, event.offsetY); } }, { passive: false });
    this.addEventListener("keydown", (event) => this.key(event));
  }

  whole() {
    return { x: [-0.5, this.spec.doc.ids.length - 0.5], y: this.spec.domain };
  }

  shown() {
    return this.view || this.whole();
  }

  see(view) {
    this.view = view;
    this.draw();
  }

  /** Closer (a factor below one) or farther around a place of the canvas. */
  zoom(factor, px = this.clientWidth / 2, py = HEIGHT / 2) {
    const { x, y } = this.scales();
    const around = (scale, at) => scale.domain.map((end) => at + (end - at) * factor);
    const next = { x: around(x, x.invert(px)), y: around(y, y.invert(py)) };
    this.see(next.x[1] - next.x[0] >= this.spec.doc.ids.length ? null : next);
  }

  scales() {
    const { x, y } = this.shown();
    return { x: linear(x, [LEFT, this.clientWidth - 10]), y: linear(y, [HEIGHT - STRIP - 22, TOP]) };
  }

  /** Where a candidate lies, in pixels of the canvas. */
  spot(place, { x, y } = this.scales()) {
    const mean = this.spec.doc.means[place];
    const [low, high] = this.spec.domain;
    return [x(place), mean === null ? HEIGHT - STRIP / 2 : y(Math.max(low, Math.min(high, mean)))];
  }

  /** Its ancestors and descendants by all first parents; a parent always stands before its children. */
  kin(place) {
    const { parents } = this.spec.doc;
    const ancestors = [];
    for (let up = parents[place]; up >= 0; up = parents[up]) ancestors.push(up);
    const below = new Set([place]);
    for (let i = place + 1; i < parents.length; i += 1) if (below.has(parents[i])) below.add(i);
    below.delete(place);
    return { ancestors, descendants: [...below] };
  }

  near(px, py) {
    const scales = this.scales();
    let [found, least] = [-1, NEAR * NEAR];
    for (let i = 0; i < this.spec.doc.ids.length; i += 1) {
      const [a, b] = this.spot(i, scales);
      const far = (a - px) ** 2 + (b - py) ** 2;
      if (far < least) [found, least] = [i, far];
    }
    return found;
  }

  moved(event) {
    if (!this.drag || !event.buttons) return this.mark(this.near(event.offsetX, event.offsetY));
    const { x, y, view } = this.drag;
    if (Math.hypot(event.offsetX - x, event.offsetY - y) < 4) return undefined;
    this.drag.far = true;
    const scales = this.scales();
    const [dx, dy] = [scales.x.invert(x) - scales.x.invert(event.offsetX), scales.y.invert(y) - scales.y.invert(event.offsetY)];
    return this.see({ x: view.x.map((end) => end + dx), y: view.y.map((end) => end + dy) });
  }

  released(event) {
    const dragged = this.drag && this.drag.far;
    this.drag = null;
    const place = dragged ? -1 : this.near(event.offsetX, event.offsetY);
    if (place >= 0) this.spec.onpick(place);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const scale = { "+": 0.8, "-": 1.25 }[event.key];
    if (step) this.mark(Math.max(0, Math.min(this.spec.doc.ids.length - 1, this.at + step)));
    else if (scale) this.zoom(scale);
    else if (event.key === "0") this.see(null);
    else if (event.key === "Enter" && this.at >= 0) this.spec.onpick(this.at);
    else return;
    event.preventDefault();
  }

  mark(place) {
    if (place === this.at) return;
    this.at = place;
    this.tip.hidden = place < 0;
    if (place >= 0) {
      const { ancestors, descendants } = this.kin(place);
      const [x, y] = this.spot(place);
      this.tip.replaceChildren(...[...this.spec.tell(place), `${ancestors.length} ancestors, ${descendants.length} descendants`].map((line) => h("div", {}, line)));
      Object.assign(this.tip.style, { top: `${y + 14}px`, left: `${Math.max(4, Math.min(x + 12, this.clientWidth - 230))}px` });
    }
    this.draw();
  }

  draw() {
    if (!this.canvas || !this.spec || !this.clientWidth) return;
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: this.clientWidth * ratio, height: HEIGHT * ratio });
    Object.assign(this.canvas.style, { width: `${this.clientWidth}px`, height: `${HEIGHT}px` });
    const style = getComputedStyle(this);
    const paint = this.canvas.getContext("2d");
    paint.scale(ratio, ratio);
    const colour = (name) => (name.startsWith("var(") ? style.getPropertyValue(name.slice(4, -1)).trim() : name);
    const scales = this.scales();
    this.axes(paint, scales, colour);
    this.dots(paint, scales, colour);
  }

  axes(paint, { y }, colour) {
    paint.font = "12px system-ui, sans-serif";
    paint.fillStyle = colour("var(--soft)");
    paint.strokeStyle = colour("var(--line)");
    paint.textAlign = "right";
    for (const mark of ticks(y.domain, 6)) {
      paint.beginPath();
      paint.moveTo(LEFT, y(mark));
      paint.lineTo(this.clientWidth - 10, y(mark));
      paint.stroke();
      paint.fillText(number(mark), LEFT - 8, y(mark) + 4);
    }
    paint.fillText("no score", LEFT - 6, HEIGHT - STRIP / 2 + 4);
  }

  dots(paint, scales, colour) {
    const { doc, of, colours } = this.spec;
    const kin = this.at >= 0 ? this.kin(this.at) : null;
    const inside = (x, y) => x >= LEFT - 3 && x <= this.clientWidth && y >= 0 && y <= HEIGHT;
    const size = doc.ids.length > 4000 && !this.view ? 1.7 : doc.ids.length > 400 ? 2.5 : 4;
    const dot = (place, radius) => {
      const [x, y] = this.spot(place, scales);
      if (!inside(x, y)) return;
      paint.beginPath();
      if (doc.means[place] === null) paint.rect(x - radius / 2, y - radius, radius, 2 * radius);
      else paint.arc(x, y, radius, 0, 7);
      paint.fill();
    };
    const line = (places, name) => {
      paint.strokeStyle = colour(name);
      paint.beginPath();
      for (const place of places) {
        if (doc.parents[place] < 0) continue;
        paint.moveTo(...this.spot(doc.parents[place], scales));
        paint.lineTo(...this.spot(place, scales));
      }
      paint.stroke();
    };
    const found = colours.map(colour);
    paint.globalAlpha = kin ? 0.22 : doc.ids.length > 4000 ? 0.6 : 0.85;
    for (let i = 0; i < doc.ids.length; i += 1) {
      paint.fillStyle = found[of(i)];
      dot(i, size);
    }
    paint.globalAlpha = 1;
    paint.lineWidth = 1.5;
    const strong = kin ? [...kin.ancestors, this.at] : doc.path;
    line(strong, kin ? "var(--s2)" : "var(--s1)");
    if (kin) line(kin.descendants, "var(--s3)");
    for (const [places, name] of [[kin ? kin.descendants : [], "var(--s3)"], [strong, kin ? "var(--s2)" : "var(--s1)"]]) {
      paint.fillStyle = colour(name);
      for (const place of places) dot(place, size + 1.5);
    }
  }
}

customElements.define("c-family", Family);

/** The picture of a family; `spec.label` says in a sentence what it shows. */
export const familyPicture = (spec) => h("c-family", { role: "figure", tabindex: "0", "aria-label": spec.label, spec });
