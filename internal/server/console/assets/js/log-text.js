// Text of a log line: colours become classes, and hits of a search become marks.
import { flags } from "./log-source.js";

// The 16 colours of terminals, to which the others are mapped.
const palette = [
  [0, 0, 0], [205, 0, 0], [0, 205, 0], [205, 205, 0], [0, 0, 238], [205, 0, 205], [0, 205, 205], [229, 229, 229],
  [127, 127, 127], [255, 0, 0], [0, 255, 0], [255, 255, 0], [92, 92, 255], [255, 0, 255], [0, 255, 255], [255, 255, 255],
];

function nearest(r, g, b) {
  let best = 0;
  let least = Infinity;
  palette.forEach(([pr, pg, pb], i) => {
    const far = (r - pr) ** 2 + (g - pg) ** 2 + (b - pb) ** 2;
    if (far < least) [best, least] = [i, far];
  });
  return best;
}

function indexed(n) {
  if (n < 16) return n;
  if (n >= 232) return nearest(...Array(3).fill(8 + 10 * (n - 232)));
  const level = (i) => (i === 0 ? 0 : 55 + 40 * i);
  n -= 16;
  return nearest(level(Math.floor(n / 36)), level(Math.floor(n / 6) % 6), level(n % 6));
}

// extended returns the colour after 38 or 48, and the number of used parameters.
function extended(list, i) {
  if (list[i + 1] === 5) return [indexed(Math.min(255, list[i + 2] || 0)), 2];
  if (list[i + 1] === 2) return [nearest(list[i + 2] || 0, list[i + 3] || 0, list[i + 4] || 0), 4];
  return [undefined, 0];
}

function apply(state, parameters) {
  const list = parameters.split(/[;:]/).map((p) => Number(p) || 0);
  for (let i = 0; i < list.length; i++) {
    const n = list[i];
    if (n === 0) for (const key of Object.keys(state)) delete state[key];
    else if (n === 1) state.bold = true;
    else if (n === 2) state.faint = true;
    else if (n === 3) state.italic = true;
    else if (n === 4) state.underline = true;
    else if (n === 7) state.inverse = true;
    else if (n === 9) state.strike = true;
    else if (n === 22) state.bold = state.faint = false;
    else if (n === 23) state.italic = false;
    else if (n === 24) state.underline = false;
    else if (n === 27) state.inverse = false;
    else if (n === 29) state.strike = false;
    else if (n >= 30 && n <= 37) state.fore = n - 30;
    else if (n === 39) state.fore = undefined;
    else if (n >= 40 && n <= 47) state.back = n - 40;
    else if (n === 49) state.back = undefined;
    else if (n >= 90 && n <= 97) state.fore = n - 82;
    else if (n >= 100 && n <= 107) state.back = n - 92;
    else if (n === 38 || n === 48) {
      const [colour, used] = extended(list, i);
      state[n === 38 ? "fore" : "back"] = colour;
      i += used;
    }
  }
}

function classes(state) {
  const names = ["bold", "faint", "italic", "underline", "inverse", "strike"].filter((name) => state[name]);
  if (state.fore !== undefined) names.push(state.fore < 8 ? `a${state.fore}` : `b${state.fore - 8}`);
  if (state.back !== undefined) names.push(`g${state.back % 8}`);
  return names.join(" ");
}

const colour = /\x1b\[([0-9;:]*)m/g;

// plain returns the text of lines without colours, from a character of the first one to a character of the last one.
export function plain(rows, from = 0, to = Infinity) {
  const texts = rows.map(([, , text]) => text.replace(colour, ""));
  if (texts.length) texts.push(texts.pop().slice(0, to));
  return texts.map((text, i) => (i === 0 ? text.slice(from) : rows[i][1] & flags.joined ? text : `\n${text}`)).join("");
}

// pieces splits text into parts of one appearance.
function pieces(text) {
  const out = [];
  const state = {};
  let from = 0;
  for (const match of text.matchAll(colour)) {
    if (match.index > from) out.push({ text: text.slice(from, match.index), names: classes(state) });
    apply(state, match[1]);
    from = match.index + match[0].length;
  }
  if (from < text.length) out.push({ text: text.slice(from), names: classes(state) });
  return out;
}

// maxHits bounds the marks in one line.
const maxHits = 50;

function ranges(text, pattern) {
  const out = [];
  for (const match of text.matchAll(pattern)) {
    if (match[0] !== "") out.push([match.index, match.index + match[0].length]);
    if (out.length === maxHits) break;
  }
  return out;
}

// render returns the nodes of a line. pattern is a global regular expression whose matches are
// marked, or null.
export function render(text, pattern) {
  const parts = pieces(text);
  const marks = pattern ? ranges(parts.map((p) => p.text).join(""), pattern) : [];
  const nodes = [];
  let at = 0;
  const add = (piece, names, marked) => {
    if (piece === "") return;
    let node = document.createTextNode(piece);
    if (marked || names) {
      const element = document.createElement(marked ? "mark" : "span");
      if (names && !marked) element.className = names;
      element.append(node);
      node = element;
    }
    nodes.push(node);
  };
  for (const part of parts) {
    let from = 0;
    for (const [start, end] of marks) {
      const first = Math.max(from, start - at);
      const last = Math.min(part.text.length, end - at);
      if (first >= last) continue;
      add(part.text.slice(from, first), part.names, false);
      add(part.text.slice(first, last), part.names, true);
      from = last;
    }
    add(part.text.slice(from), part.names, false);
    at += part.text.length;
  }
  return nodes;
}
