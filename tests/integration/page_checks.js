// What is wrong with a report's page, as a list of sentences. Runs in a world of its own: the page has no script.

const overlap = (a, b, by = 0.5) =>
  a.x + by < b.x + b.width && b.x + by < a.x + a.width && a.y + by < b.y + b.height && b.y + by < a.y + a.height;
const grown = (a, by) => ({ x: a.x - by, y: a.y - by, width: a.width + 2 * by, height: a.height + 2 * by });
const inside = (a, b, by = 1) => {
  const c = grown(b, by);
  return a.x >= c.x && a.y >= c.y && a.x + a.width <= c.x + c.width && a.y + a.height <= c.y + c.height;
};
const holds = (a, p) => p.x > a.x && p.y > a.y && p.x < a.x + a.width && p.y < a.y + a.height;
const named = (group) => (group.querySelector("text")?.textContent ?? "").slice(0, 40);

function graphFaults() {
  const svg = document.querySelector("svg.graph");
  if (!svg) return ["there is no graph"];
  const faults = [];
  const shapes = (kind) =>
    [...svg.querySelectorAll(`g.${kind}`)].map((group) => ({
      name: named(group),
      box: group.querySelector("rect, path").getBBox(),
      texts: [...group.querySelectorAll("text")].map((text) => text.getBBox()),
    }));
  const nodes = shapes("node");
  const frames = shapes("frame");
  const links = [...svg.querySelectorAll("path.link")];
  if (!nodes.length || !links.length) faults.push("the graph is empty");
  for (const [number, node] of nodes.entries()) {
    if (!node.texts.length) faults.push(`${node.name}: no text`);
    for (const text of node.texts) if (!inside(text, node.box)) faults.push(`${node.name}: text sticks out`);
    for (const other of nodes.slice(number + 1))
      if (overlap(node.box, other.box)) faults.push(`${node.name} and ${other.name} overlap`);
    for (const frame of frames) {
      if (overlap(node.box, frame.box) && !inside(node.box, frame.box)) faults.push(`${node.name} is cut by a frame`);
      for (const text of frame.texts) if (overlap(node.box, text)) faults.push(`${node.name} covers a title`);
    }
  }
  for (const [number, frame] of frames.entries()) {
    for (const text of frame.texts) if (!inside(text, frame.box)) faults.push(`${frame.name}: title sticks out`);
    for (const other of frames.slice(number + 1)) if (overlap(frame.box, other.box)) faults.push("frames overlap");
  }
  const view = svg.viewBox.baseVal;
  for (const shape of [...nodes, ...frames]) if (!inside(shape.box, view, 0)) faults.push(`${shape.name}: outside`);
  for (const link of links) {
    const length = link.getTotalLength();
    const [start, end] = [link.getPointAtLength(0), link.getPointAtLength(length)];
    if (length < 5) faults.push("a link without length");
    const foreign = nodes.filter(({ box }) => !holds(grown(box, 4), start) && !holds(grown(box, 4), end));
    const titles = frames.flatMap((frame) => frame.texts);
    for (let at = 0; at <= length; at += 3) {
      const point = link.getPointAtLength(at);
      const hit = foreign.find(({ box }) => holds(grown(box, -1), point));
      if (hit) faults.push(`a link runs through ${hit.name}`);
      if (titles.some((text) => holds(grown(text, -1), point))) faults.push("a link runs through a title");
      if (hit) break;
    }
    if (!inside(link.getBBox(), view, 0)) faults.push("a link leaves the picture");
  }
  return faults;
}

// Words of links that lie on something, links that cross, and letters that are too small. For pictures that can be drawn without.
function drawingFaults() {
  const svg = document.querySelector("svg.graph");
  const faults = [];
  const frames = [...svg.querySelectorAll("g.frame rect")].map((rect) => rect.getBBox());
  const boxes = [...svg.querySelectorAll("g.node")].map((group) => group.querySelector("rect, path").getBBox());
  const words = [...svg.querySelectorAll("text.words")].map((text) => ({ text: text.textContent, box: text.getBBox() }));
  const links = [...svg.querySelectorAll("path.link")].map((path) => {
    const length = path.getTotalLength();
    const points = [];
    for (let at = 0; at < length; at += 3) points.push(path.getPointAtLength(at));
    return [...points, path.getPointAtLength(length)];
  });
  for (const [number, { text, box }] of words.entries()) {
    const letters = grown(box, -2);
    if (boxes.some((other) => overlap(letters, other))) faults.push(`${text} lies on a box`);
    if (words.slice(number + 1).some((other) => overlap(letters, other.box))) faults.push(`${text} lies on other words`);
    const view = svg.viewBox.baseVal;
    if (!inside(box, view)) faults.push(`${text} is cut off`);
    if (frames.some((other) => overlap(letters, other) && !inside(letters, other))) faults.push(`${text} lies on a frame`);
    if (links.some((points) => points.some((point) => holds(letters, point)))) faults.push(`${text} lies on a link`);
  }
  const turn = (a, b, c) => (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
  const cross = (a, b, c, d) => turn(a, b, c) * turn(a, b, d) < 0 && turn(c, d, a) * turn(c, d, b) < 0;
  for (const [number, one] of links.entries())
    for (const other of links.slice(number + 1)) {
      const meets = (at) => other.some((point, next) => next > 0 && cross(one[at - 1], one[at], other[next - 1], point));
      if (one.some((_, at) => at > 0 && meets(at))) faults.push("two links cross");
    }
  for (const text of svg.querySelectorAll("text"))
    if (text.getBoundingClientRect().height < 9) faults.push(`${text.textContent} is too small`);
  return faults;
}

function pageFaults() {
  const faults = [];
  const wide = document.scrollingElement.scrollWidth;
  if (wide > innerWidth) faults.push(`${wide} px wide in ${innerWidth}`);
  for (const one of document.querySelectorAll("script, iframe, object, embed, img, link, base, form, foreignObject, animate, set"))
    faults.push(`an element ${one.tagName}`);
  for (const element of document.querySelectorAll("*"))
    for (const { name, value } of element.attributes) {
      if (/^on/i.test(name)) faults.push(`an attribute ${name}`);
      if (/(href|src|action)$/i.test(name) && !value.startsWith("#") && !value.startsWith("file:///")) faults.push(`an address ${value}`);
    }
  if (!document.title.startsWith("lockscope: ")) faults.push(`the title is ${document.title}`);
  const policy = document.querySelector("meta[http-equiv=Content-Security-Policy]")?.content ?? "";
  if (!policy.includes("default-src 'none'")) faults.push("no policy");
  for (const letter of document.documentElement.textContent)
    if (/[\u0000-\u0008\u000b-\u001f\u007f\u061c\u202a-\u202e\u2066-\u2069]/.test(letter)) faults.push("a control character");
  return faults;
}

const rgb = (text) => {
  const [r, g, b, a = 1] = (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  return { r, g, b, a };
};
const luminance = ({ r, g, b }) => {
  const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const contrast = (one, other) => {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
};

function background(element) {
  const shape = element.closest("g.node")?.querySelector("rect, path");
  if (shape) return rgb(getComputedStyle(shape).fill);
  for (let at = element; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour.a > 0.99) return colour;
  }
  return { r: 255, g: 255, b: 255, a: 1 };
}

function contrastFaults() {
  document.querySelectorAll("details").forEach((one) => (one.open = true));
  const faults = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("title, style")) continue;
    const style = getComputedStyle(element);
    const ink = rgb(element.closest("svg") ? style.fill : style.color);
    const ratio = contrast(ink, background(element));
    if (ratio < 4.5) faults.add(`${element.tagName}.${element.className.baseVal ?? element.className}: ${ratio.toFixed(2)}`);
  }
  for (const link of document.querySelectorAll("path.link, g.node rect, g.node path, g.frame rect")) {
    const ratio = contrast(rgb(getComputedStyle(link).stroke), rgb(getComputedStyle(document.querySelector("svg.graph")).backgroundColor));
    if (ratio < 3) faults.add(`a line: ${ratio.toFixed(2)}`);
  }
  return [...faults];
}

// What is in something that is closed cannot be reached, and need not be.
const isOpen = (element) => !element.closest("details:not([open]) > :not(summary)");
const focusable = () => [...document.querySelectorAll("summary, a[href], [tabindex='0']")].filter(isOpen);
const focused = () => focusable().indexOf(document.activeElement);

// Where a screenshot of the whole page must show the outline of each node, and in which colour.
function outlines() {
  return [...document.querySelectorAll("svg.graph g.node")].map((group) => {
    const shape = group.querySelector("rect, path");
    const box = shape.getBoundingClientRect();
    const { r, g, b } = rgb(getComputedStyle(shape).stroke);
    return { x: box.x + scrollX + box.width / 2, y: box.y + scrollY, colour: [r, g, b] };
  });
}

// On an empty page: which outlines a screenshot lacks.
async function outlineFaults(png, outlines) {
  const blob = await (await fetch(`data:image/png;base64,${png}`)).blob();
  const image = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const faults = [];
  for (const { x, y, colour } of outlines) {
    if (x >= image.width || y >= image.height) continue;
    const pixels = context.getImageData(Math.round(x) - 9, Math.round(y) - 4, 18, 9).data;
    let found = false;
    for (let at = 0; at < pixels.length; at += 4)
      found ||= colour.every((value, part) => Math.abs(value - pixels[at + part]) < 70);
    if (!found) faults.push(`no outline at ${x}, ${y}`);
  }
  if (!outlines.length) faults.push("no outlines to look for");
  return faults;
}
