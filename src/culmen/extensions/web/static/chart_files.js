// What a person takes away from a chart: its address, its numbers, its picture.

import { h, s } from "./dom.js";

const INK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-family", "paint-order"];
const SHARP = 2; // pixels of a PNG for each of the page
const KEY = 20; // pixels of a line of the legend

/** A button that opens the list; in a report there is no address to copy. */
export function menu(element) {
  const item = (text, act) => h("li", {}, h("button", { type: "button", onclick: (event) => { event.target.closest("details").open = false; act(); } }, text));
  return h("details", { class: "chart-menu" }, h("summary", { title: "Copy a link to this view, or save the chart" }, "Save"),
    h("ul", {},
      location.protocol === "file:" || !navigator.clipboard ? null : item("Copy link", () => navigator.clipboard.writeText(location.href)),
      item("Numbers (CSV)", () => save(element, "csv", new Blob([table(element.shown)], { type: "text/csv" }))),
      item("Picture (SVG)", () => save(element, "svg", new Blob([picture(element)], { type: "image/svg+xml" }))),
      item("Picture (PNG)", async () => save(element, "png", await pixels(element)))));
}

function save(element, ending, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: `${element.given.label.split(/[;:]/)[0].replace(/\W+/g, "-").toLowerCase().slice(0, 60)}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The points that are shown, one in a row; of a band its lower and its upper edge. */
export function table(spec) {
  const field = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const name = (each) => each.name || (spec.series.find((one) => one.name && one.colour === each.colour) || {}).name || each.kind;
  const rows = spec.series.flatMap((each) => each.points.map((point) => [name(each), each.kind, ...[0, 1, 2].map((place) => point[place] ?? "")]));
  return [["series", "kind", spec.x.label || "x", spec.y.label || "y", "upper"], ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
}

/** The drawing as a file of its own: the page's colours written into it, the legend below. */
function picture(element) {
  const drawn = element.querySelector("svg");
  const copy = drawn.cloneNode(true);
  const [from, to] = [drawn, copy].map((each) => [...each.querySelectorAll("*")]);
  from.forEach((each, i) => {
    const style = getComputedStyle(each);
    for (const name of INK) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  const named = element.shown.series.filter((each) => each.name);
  const { width, height } = element.plot;
  const page = getComputedStyle(element);
  const ink = (colour) => { const probe = h("span", { style: { color: colour } }); element.append(probe); const found = getComputedStyle(probe).color; probe.remove(); return found; };
  const tall = height + 8 + KEY * named.length;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  copy.setAttribute("height", tall);
  copy.removeAttribute("aria-hidden");
  copy.prepend(s("rect", { width, height: tall, fill: ink("var(--surface)") }));
  named.forEach((each, i) => copy.append(
    s("rect", { x: 8, y: height + KEY * i + 2, width: 10, height: 10, fill: ink(each.colour) }),
    s("text", { x: 26, y: height + KEY * i + 11, fill: page.color, "font-size": "12px", "font-family": page.fontFamily }, each.name)));
  return new XMLSerializer().serializeToString(copy);
}

async function pixels(element) {
  const text = picture(element);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = h("canvas", { width: SHARP * image.width, height: SHARP * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
