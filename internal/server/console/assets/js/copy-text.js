// copy-text adds a button that copies the element's text, and says when it is done.
import { button, element, icon } from "./html.js";

// copy copies a text, and reports whether the browser let it.
export async function copy(text) {
  const done = (await write(text)) || select(text);
  announce(done ? "Copied" : "The browser does not let this page copy.");
  return done;
}

async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // Pages without encryption have no clipboard API.
  }
}

function select(text) {
  const focused = document.activeElement;
  const area = element("textarea", { value: text, className: "hide" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}

// announce lets screen readers say a text, and shows nothing.
export function announce(text) {
  let region = document.getElementById("announcer");
  if (!region) {
    region = element("div", { id: "announcer", className: "hide", role: "status" });
    document.body.append(region);
  }
  // Screen readers do not read an unchanged text again.
  region.replaceChildren();
  setTimeout(() => region.replaceChildren(text), 50);
}

class CopyText extends HTMLElement {
  connectedCallback() {
    if (this.querySelector("button")) return;
    const label = this.dataset.name ? `Copy ${this.dataset.name}` : "Copy";
    const b = button("btn icon", "copy", label);
    b.addEventListener("click", async () => {
      if (!(await copy(this.querySelector("span").textContent))) return;
      b.title = "Copied";
      b.replaceChildren(icon("s-ok"));
      setTimeout(() => {
        b.title = label;
        b.replaceChildren(icon("copy"));
      }, 2000);
    });
    this.append(b);
  }
}

customElements.define("copy-text", CopyText);

// copy-as copies a text for a chat: its own, with the addresses of a page and of a line of a log.
class CopyAs extends HTMLElement {
  connectedCallback() {
    this.build();
    document.addEventListener("page-changed", (this.onChange = () => this.build()));
  }

  disconnectedCallback() {
    document.removeEventListener("page-changed", this.onChange);
  }

  // build adds the button, which the HTML of the server lacks.
  build() {
    if (this.querySelector("button")) return;
    const { icon: name, label } = this.dataset;
    const mark = element("span", { textContent: label });
    const b = element("button", { type: "button", className: "small" in this.dataset ? "btn small" : "btn" }, icon(name), mark);
    b.addEventListener("click", async () => {
      const { text, path, line } = this.dataset;
      if (!(await copy([text, ...[line, path].filter(Boolean).map((p) => new URL(p, location.href).href)].join("\n")))) return;
      mark.textContent = "Copied";
      setTimeout(() => (mark.textContent = label), 2000);
    });
    this.append(b);
  }
}

customElements.define("copy-as", CopyAs);
