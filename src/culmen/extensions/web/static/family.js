// <c-family>: a family on a canvas, a dot for each candidate, or cells of those too many for dots. Set its `spec` to draw it.
//
// spec: {label, doc (as `culmen.extensions.web.pages.lineage`), domain, of(dot), ofCell(cell), colours, tell(dot), tellCell(cell),
// onpick(id)}. Dots are numbered as the columns of `doc`. Those without a score lie in a strip at the foot.

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
    [this.at, this.cell] = [-1, -1];
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
    return { x: [-0.5, this.spec.doc.total - 0.5], y: this.spec.domain };
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
    this.see(next.x[1] - next.x[0] >= this.spec.doc.total ? null : next);
  }

  scales() {
    const { x, y } = this.shown();
    return { x: linear(x, [LEFT, this.clientWidth - 10]), y: linear(y, [HEIGHT - STRIP - 22, TOP]) };
  }

  /** Where a candidate lies, in pixels of the canvas. */
  spot(place, { x, y } = this.scales()) {
    const mean = this.spec.doc.means[place];
    const [low, high] = this.spec.domain;
    return [x(this.spec.doc.places[place]), mean === null ? HEIGHT - STRIP / 2 : y(Math.max(low, Math.min(high, mean)))];
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

  /** The four edges of a cell, in pixels. */
  box(cell, { x, y } = this.scales()) {
    const { cells, total } = this.spec.doc;
    const [low, high] = this.spec.domain;
    const wide = total / cells.columns;
    const left = x(cells.column[cell] * wide - 0.5);
    const right = x((cells.column[cell] + 1) * wide - 0.5);
    if (cells.row[cell] < 0) return [left, HEIGHT - STRIP + 6, right, HEIGHT - 6];
    const level = (row) => y(low + ((high - low) * row) / cells.rows);
    return [left, level(cells.row[cell] + 1), right, level(cells.row[cell])];
  }

  /** The cell at a place of the canvas; -1 for none. */
  cellAt(px, py) {
    const { cells } = this.spec.doc;
    if (!cells) return -1;
    const scales = this.scales();
    return cells.row.findIndex((_, cell) => {
      const [left, top, right, bottom] = this.box(cell, scales);
      return px >= left && px < right && py >= top && py < bottom;
    });
  }

  near(px, py) {
    const scales = this.scales();
    let [found, least] = [-1, NEAR * NEAR];
    for (const i of this.spec.doc.cells ? this.spec.doc.path : this.spec.doc.ids.keys()) {
      const [a, b] = this.spot(i, scales);
      const far = (a - px) ** 2 + (b - py) ** 2;
      if (far < least) [found, least] = [i, far];
    }
    return found;
  }

  moved(event) {
    if (!this.drag || !event.buttons) {
      const place = this.near(event.offsetX, event.offsetY);
      return this.mark(place, place < 0 ? this.cellAt(event.offsetX, event.offsetY) : -1);
    }
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
    if (place >= 0) this.spec.onpick(this.spec.doc.ids[place]);
    else if (!dragged && this.cellAt(event.offsetX, event.offsetY) >= 0) this.spec.onpick(this.spec.doc.cells.best[this.cellAt(event.offsetX, event.offsetY)]);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const scale = { "+": 0.8, "-": 1.25 }[event.key];
    if (step) this.mark(Math.max(0, Math.min(this.spec.doc.ids.length - 1, this.at + step)));
    else if (scale) this.zoom(scale);
    else if (event.key === "0") this.see(null);
    else if (event.key === "Enter" && this.at >= 0) this.spec.onpick(this.spec.doc.ids[this.at]);
    else return;
    event.preventDefault();
  }

  mark(place, cell = -1) {
    if (place === this.at && cell === this.cell) return;
    [this.at, this.cell] = [place, cell];
    this.tip.hidden = place < 0 && cell < 0;
    if (!this.tip.hidden) {
      const [x, y] = place >= 0 ? this.spot(place) : this.box(cell);
      this.tip.replaceChildren(...(place >= 0 ? [...this.spec.tell(place), this.relatives(place)] : this.spec.tellCell(cell)).filter(Boolean).map((line) => h("div", {}, line)));
      Object.assign(this.tip.style, { top: `${y + 14}px`, left: `${Math.max(4, Math.min(x + 12, this.clientWidth - 230))}px` });
    }
    this.draw();
  }

  /** How many ancestors and descendants it has, where all of these are here. */
  relatives(place) {
    if (!this.spec.doc.whole) return `${this.spec.doc.sizes[place] - 1} descendants`;
    const { ancestors, descendants } = this.kin(place);
    return `${ancestors.length} ancestors, ${descendants.length} descendants`;
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
    if (this.spec.doc.cells) this.density(paint, scales, colour);
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

  /** Cells: the fuller, the darker. */
  density(paint, scales, colour) {
    const { doc, ofCell, colours } = this.spec;
    const found = colours.map(colour);
    const most = Math.max(...doc.cells.count);
    doc.cells.count.forEach((n, cell) => {
      const [left, top, right, bottom] = this.box(cell, scales);
      if (right < LEFT || left > this.clientWidth || bottom < 0 || top > HEIGHT) return;
      paint.globalAlpha = (this.at >= 0 ? 0.4 : 1) * (0.18 + (0.72 * Math.log(1 + n)) / Math.log(1 + most));
      paint.fillStyle = found[ofCell(cell)];
      paint.fillRect(Math.max(LEFT, left), top, right - Math.max(LEFT, left) - 0.5, bottom - top - 0.5);
    });
    paint.globalAlpha = 1;
    if (this.cell < 0) return;
    const [left, top, right, bottom] = this.box(this.cell, scales);
    paint.strokeStyle = colour("var(--ink)");
    paint.strokeRect(left, top, right - left, bottom - top);
  }

  dots(paint, scales, colour) {
    const { doc, of, colours } = this.spec;
    const kin = this.at >= 0 ? this.kin(this.at) : null;
    const inside = (x, y) => x >= LEFT - 3 && x <= this.clientWidth && y >= 0 && y <= HEIGHT;
    const size = doc.ids.length > 400 ? 2.5 : 4;
    const dot = (place, radius) => {
      const [x, y] = this.spot(place, scales);
      if (!inside(x, y)) return;
      paint.beginPath();
      if (doc.means[place] === null) paint.rect(x - radius / 2, y - radius, radius, 2 * radius);
      else paint.arc(x, y, radius, 0, 7);
      paint.fill();
    };
    const line = (pairs, name, dash = []) => {
      paint.strokeStyle = colour(name);
      paint.setLineDash(dash);
      paint.beginPath();
      for (const [parent, place] of pairs) {
        if (parent < 0) continue;
        paint.moveTo(...this.spot(parent, scales));
        paint.lineTo(...this.spot(place, scales));
      }
      paint.stroke();
      paint.setLineDash([]);
    };
    const first = (places) => places.map((place) => [doc.parents[place], place]);
    const found = colours.map(colour);
    if (!doc.cells) { // beside cells, the dots of branches would say nothing
      paint.globalAlpha = kin ? 0.22 : 0.85;
      doc.ids.forEach((_, place) => { paint.fillStyle = found[of(place)]; dot(place, size); });
    }
    paint.globalAlpha = 1;
    paint.lineWidth = 1.5;
    const strong = kin ? [...kin.ancestors, this.at] : doc.path;
    const name = kin ? "var(--s2)" : "var(--s1)";
    line(first(strong), name);
    const further = strong.flatMap((place) => doc.others[place].map((id) => [doc.ids.indexOf(id), place]));
    line(further, name, [4, 3]);
    if (kin) line(first(kin.descendants), "var(--s3)");
    for (const [places, ink] of [[kin ? kin.descendants : [], "var(--s3)"], [strong, name]]) {
      paint.fillStyle = colour(ink);
      for (const place of places) dot(place, size + 1.5);
    }
  }
}

customElements.define("c-family", Family);

/** The picture of a family; `spec.label` says in a sentence what it shows. */
export const familyPicture = (spec) => h("c-family", { role: "figure", tabindex: "0", "aria-label": spec.label, spec });
