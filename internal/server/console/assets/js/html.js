// Elements, and the only place that makes HTML from text. The text comes from the server, which has escaped it.
import { Idiomorph } from "../vendor/idiomorph.js";

const policy = globalThis.trustedTypes
  ? globalThis.trustedTypes.createPolicy("console", { createHTML: (text) => text })
  : { createHTML: (text) => text };

// element makes an element with properties and children.
export function element(tag, properties = {}, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}

// timeZone is the user's zone, or undefined.
export const { zone: timeZone } = document.documentElement.dataset;

const sprite = new URL("../icons/icons.svg", import.meta.url).pathname;
const svg = "http://www.w3.org/2000/svg";

// icon makes an icon of icons.svg, as view.I does.
export function icon(name, classes = "i") {
  const e = document.createElementNS(svg, "svg");
  e.setAttribute("class", classes);
  e.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(svg, "use");
  use.setAttribute("href", `${sprite}#${name}`);
  e.append(use);
  return e;
}

// button makes a button that shows an icon instead of its label.
export function button(classes, name, label) {
  const b = element("button", { type: "button", className: classes, ariaLabel: label, title: label });
  b.append(icon(name));
  return b;
}

// parse returns the document of a server's HTML.
export function parse(html) {
  return new DOMParser().parseFromString(policy.createHTML(html), "text/html");
}

// parseElement returns the one element of a fragment. Rows are parsed within a table.
export function parseElement(html) {
  const inTable = /^<tbody/.test(html);
  const doc = parse(inTable ? `<table>${html}</table>` : html);
  return inTable ? doc.querySelector("tbody") : doc.body.firstElementChild;
}

// morph changes an element into another one and keeps what is equal: focus, selection, open menus.
export function morph(old, wanted) {
  Idiomorph.morph(old, wanted, {
    morphStyle: "outerHTML",
    ignoreActiveValue: true,
    callbacks: {
      // What the user has opened or typed stays.
      beforeAttributeUpdated: (name, node) =>
        !(name === "open" && node.tagName === "DETAILS") && !(name === "checked" && node.tagName === "INPUT"),
      // The buttons that scripts add stay, too.
      beforeNodeRemoved: (node) => !(node.nodeName === "BUTTON" && node.parentNode?.nodeName === "COPY-TEXT"),
    },
  });
}

// marked returns the parts of a text, with those marked that are one of the words.
export function marked(text, words) {
  const lower = text.toLowerCase();
  if (lower.length !== text.length) return [text];
  const parts = [];
  let at = 0;
  while (at < text.length) {
    let best = null;
    for (const word of words) {
      const i = lower.indexOf(word, at);
      if (i >= 0 && (!best || i < best.i || (i === best.i && word.length > best.length))) best = { i, length: word.length };
    }
    if (!best) break;
    if (best.i > at) parts.push(text.slice(at, best.i));
    parts.push(element("mark", { textContent: text.slice(best.i, best.i + best.length) }));
    at = best.i + best.length;
  }
  return [...parts, text.slice(at)];
}
