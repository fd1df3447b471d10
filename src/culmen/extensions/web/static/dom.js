// Elements from functions. Texts only ever become text nodes: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "selected", "spec", "disabled"]);

/** An HTML element: `h("a", {href, onclick}, "text", child, [more])`. Null, false and "" attributes are left out. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) set(element, name, value);
  append(element, children);
  if (element.nodeName === "SELECT" && props && "value" in props) element.value = props.value;
  return element;
}

function set(element, name, value) {
  if (name.startsWith("on")) listen(element, name.slice(2), value);
  else if (name === "style") restyle(element, value);
  else if (PROPERTIES.has(name)) element[name] = value;
  else if (value === true) element.setAttribute(name, "");
  else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
}

/** Styles are objects: as a text they would be an attribute, which the page's policy refuses. */
function restyle(element, styles) {
  if (typeof styles !== "object") throw new TypeError(`styles of <${element.nodeName.toLowerCase()}> are no object: ${styles}`);
  Object.assign(element.style, styles);
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) {
      element.appendChild(document.createTextNode(String(child)));
    }
  }
}

function listen(element, type, handler) {
  element._on = element._on || {};
  if (!(type in element._on)) element.addEventListener(type, dispatch);
  element._on[type] = handler;
}

function dispatch(event) {
  const handler = this._on && this._on[event.type];
  if (handler) handler.call(this, event);
}

/** Make `old` look like `fresh` with as few changes as possible: focus, scrolling and selections survive. */
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  attributes(old, fresh);
  listeners(old, fresh);
  if ("spec" in old) {
    old.spec = fresh.spec;
    return old;
  }
  children(old, fresh);
  properties(old, fresh);
  return old;
}

const key = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

function attributes(old, fresh) {
  const kept = old.nodeName === "DETAILS" ? "open" : ""; // a person's choice
  for (const { name } of [...old.attributes]) {
    if (name !== kept && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "style") {
      if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
    } else if (name !== kept && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function listeners(old, fresh) {
  for (const type of Object.keys(old._on || {})) if (!(fresh._on && type in fresh._on)) old._on[type] = null;
  for (const [type, handler] of Object.entries(fresh._on || {})) listen(old, type, handler);
}

function properties(old, fresh) {
  if (!("value" in old) || old === document.activeElement) return;
  if (old.value !== fresh.value) old.value = fresh.value;
  if ("checked" in old) old.checked = fresh.checked;
}

function children(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (key(child) !== null) keyed.set(key(child), child);
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = key(child) === null ? null : keyed.get(key(child));
    if (same && same !== place) {
      old.insertBefore(same, place);
      place = same;
    }
    if (!place) {
      old.appendChild(child);
      continue;
    }
    const next = place.nextSibling;
    if (!same && key(place) !== null && key(child) !== key(place)) {
      old.insertBefore(child, place);
      continue;
    }
    morph(place, child);
    place = next;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/** Replace what is in `parent` by `node`, morphing. */
export function show(parent, node) {
  if (parent.firstChild) {
    morph(parent.firstChild, node);
    while (parent.childNodes.length > 1) parent.lastChild.remove();
  } else parent.appendChild(node);
}
