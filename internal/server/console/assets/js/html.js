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
    },
  });
}
