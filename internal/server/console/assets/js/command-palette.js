// command-palette finds pages and actions by name: Ctrl+K or Cmd+K.
import { element } from "./html.js";

class CommandPalette extends HTMLElement {
  connectedCallback() {
    const key = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";
    const button = element("button", { type: "button", className: "button small" }, "Find… ", element("kbd", { textContent: key }));
    button.addEventListener("click", () => this.show());
    this.replaceChildren(button);
    document.addEventListener("keydown", (this.onKey = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        this.show();
      }
    }));
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.onKey);
  }

  show() {
    if (!this.dialog) this.build();
    this.input.value = "";
    this.dialog.showModal();
    this.find();
  }

  build() {
    this.input = element("input", {
      type: "search", placeholder: "Stack, deployment, pool, agent, action…",
      ariaLabel: "Find a page or action", role: "combobox", ariaExpanded: "true",
    });
    this.input.setAttribute("aria-controls", "palette-list");
    this.list = element("ul", { id: "palette-list", role: "listbox", ariaLabel: "Results" });
    this.dialog = element("dialog", { className: "palette-dialog", ariaLabel: "Find a page or action" }, this.input, this.list);
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.find(), 120);
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    document.body.append(this.dialog);
  }

  async find() {
    const query = new URLSearchParams({ q: this.input.value, org: this.dataset.org ?? "" });
    const asked = (this.asked = {});
    let found = [];
    try {
      const answer = await fetch(`/-/palette?${query}`, { headers: { Accept: "application/json" } });
      if (answer.ok) found = await answer.json();
    } catch {
      // The list stays empty without a server.
    }
    if (asked !== this.asked) return;
    this.list.replaceChildren(...found.map((item, i) => {
      const kind = element("span", { className: "dim", textContent: item.kind });
      const option = element("li", { id: `palette-${i}`, role: "option" }, item.text, " ", kind);
      option.dataset.href = item.href;
      option.addEventListener("click", () => location.assign(item.href));
      return option;
    }));
    if (found.length === 0) {
      this.list.append(element("li", { className: "dim", role: "option", ariaDisabled: "true", textContent: "Nothing found" }));
    }
    this.select(0);
  }

  options() {
    return [...this.list.querySelectorAll("[data-href]")];
  }

  select(at) {
    const all = this.options();
    this.at = all.length ? (at + all.length) % all.length : 0;
    all.forEach((option, i) => option.setAttribute("aria-selected", String(i === this.at)));
    this.input.setAttribute("aria-activedescendant", all[this.at]?.id ?? "");
    all[this.at]?.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    if (event.key === "ArrowDown") this.select(this.at + 1);
    else if (event.key === "ArrowUp") this.select(this.at - 1);
    else if (event.key === "Enter") {
      const href = this.options()[this.at]?.dataset.href;
      if (href) location.assign(href);
    } else if (event.key === "Escape") this.dialog.close(); // the browser would first empty the input
    else return;
    event.preventDefault();
  }
}

customElements.define("command-palette", CommandPalette);
