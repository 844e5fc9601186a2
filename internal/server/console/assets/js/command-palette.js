// command-palette finds pages and actions by name: Ctrl+K or Cmd+K.
import { element, icon } from "./html.js";

const icons = { stack: "stacks", deployment: "deploys", action: "play", pool: "agents", agent: "agents", organization: "group" };

class CommandPalette extends HTMLElement {
  connectedCallback() {
    const key = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";
    for (const button of document.querySelectorAll("[data-find]")) {
      button.hidden = false;
      button.querySelector("kbd")?.replaceChildren(key);
      button.addEventListener("click", () => this.show());
    }
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
      type: "search", className: "inp", placeholder: "Stack, deployment, pool, agent, action…",
      ariaLabel: "Find a page or action", role: "combobox", ariaExpanded: "true",
    });
    this.input.setAttribute("aria-controls", "palette-list");
    this.list = element("ul", { id: "palette-list", role: "listbox", ariaLabel: "Results" });
    const keys = [["↑ ↓", "choose"], ["Enter", "open"], ["Esc", "close"]];
    const footer = element("footer", {}, ...keys.map(([key, text]) => element("span", {}, element("kbd", { textContent: key }), ` ${text}`)));
    this.dialog = element("dialog", { className: "pal", ariaLabel: "Find a page or action" }, this.input, this.list, footer);
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
      const kind = element("span", { className: "dim nowrap", textContent: item.kind });
      const option = element("a", { id: `palette-${i}`, role: "option", href: item.href, tabIndex: -1 },
        icon(icons[item.kind] ?? "right"), element("span", { className: "cut", textContent: item.text }), kind);
      return element("li", { role: "presentation" }, option);
    }));
    if (found.length === 0) {
      this.list.append(element("li", { role: "presentation" }, element("a", { className: "dim", role: "option", ariaDisabled: "true", textContent: "Nothing found" })));
    }
    this.select(0);
  }

  options() {
    return [...this.list.querySelectorAll("a[href]")];
  }

  select(at) {
    const all = this.options();
    this.at = all.length ? (at + all.length) % all.length : 0;
    all.forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === this.at));
      option.parentElement.classList.toggle("on", i === this.at);
    });
    this.input.setAttribute("aria-activedescendant", all[this.at]?.id ?? "");
    all[this.at]?.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    if (event.key === "ArrowDown") this.select(this.at + 1);
    else if (event.key === "ArrowUp") this.select(this.at - 1);
    else if (event.key === "Enter") {
      const href = this.options()[this.at]?.href;
      if (href) location.assign(href);
    } else if (event.key === "Escape") this.dialog.close(); // the browser would first empty the input
    else return;
    event.preventDefault();
  }
}

customElements.define("command-palette", CommandPalette);
