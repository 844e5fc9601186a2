// command-palette finds pages, objects and actions by their words: Ctrl+K or Cmd+K.
import { openDeploy } from "./deploy-dialog.js";
import { element, icon, marked } from "./html.js";

class CommandPalette extends HTMLElement {
  connectedCallback() {
    const key = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";
    for (const button of document.querySelectorAll("[data-find]")) {
      button.hidden = false;
      button.querySelector("kbd")?.replaceChildren(key);
      button.addEventListener("click", () => this.show());
    }
    document.addEventListener("keydown", (this.onKey = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !document.querySelector("dialog[open]:not(.pal)")) {
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
    this.moved = false;
    if (!this.dialog.open) this.dialog.showModal();
    this.find();
  }

  build() {
    const label = "Find or do";
    this.input = element("input", {
      type: "text", className: "inp", placeholder: "Stack, deployment, resource, person, action…", autocomplete: "off", spellcheck: false,
      ariaLabel: label, role: "combobox", ariaExpanded: "true", ariaAutoComplete: "list",
    });
    this.input.setAttribute("aria-controls", "palette-list");
    this.list = element("div", { id: "palette-list", role: "listbox", ariaLabel: "Results" });
    const keys = [["↑ ↓", "choose"], ["Enter", "open"], ["Esc", "close"]];
    const footer = element("footer", {}, ...keys.map(([key, text]) => element("span", {}, ...key.split(" ").map((k) => element("kbd", { textContent: k })), ` ${text}`)));
    this.dialog = element("dialog", { className: "pal", ariaLabel: label }, this.input, this.list, footer);
    this.input.addEventListener("input", () => {
      this.moved = false;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.find(), 120);
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option][data-at]");
      if (event.target === this.dialog) this.dialog.close();
      else if (option && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.choose(this.found[option.dataset.at]);
      }
    });
    document.body.append(this.dialog);
  }

  async find() {
    const text = this.input.value;
    const query = new URLSearchParams({ q: text, org: this.dataset.org ?? "" });
    const asked = (this.asked = {});
    let found = [];
    try {
      const answer = await fetch(`/-/palette?${query}`, { headers: { Accept: "application/json" } });
      if (answer.ok) found = (await answer.json()) ?? [];
    } catch {
      // The list stays empty without a server.
    }
    if (asked !== this.asked) return;
    // A choice that was made before the answer stays.
    const chosen = this.moved ? this.found[this.at] : null;
    this.found = found;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const groups = [];
    found.forEach((item, i) => {
      if (groups.at(-1)?.name !== item.group) groups.push({ name: item.group, options: [] });
      const option = element("a", { id: `palette-${i}`, role: "option", href: item.href, tabIndex: -1 },
        icon(item.icon), element("span", { className: "cut", title: item.text }, ...marked(item.text, words)),
        element("span", { className: "dim nowrap", textContent: item.key ?? item.note ?? "" }));
      option.dataset.at = i;
      groups.at(-1).options.push(element("li", { role: "presentation" }, option));
    });
    this.list.replaceChildren(...groups.map((group, i) => {
      const title = element("h3", { id: `palette-group-${i}`, role: "presentation", textContent: group.name });
      const list = element("ul", { role: "group" }, ...group.options);
      list.setAttribute("aria-labelledby", title.id);
      return element("div", { role: "presentation" }, title, list);
    }));
    if (found.length === 0) {
      this.list.append(element("ul", { role: "presentation" }, element("li", { role: "presentation" },
        element("a", { className: "dim", role: "option", ariaDisabled: "true", textContent: "Nothing found" }))));
    }
    this.select(Math.max(0, found.findIndex((item) => item.href === chosen?.href && item.text === chosen?.text)));
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

  choose(item) {
    if (!item) return;
    if (item.way === "dialog") {
      this.dialog.close();
      openDeploy(item.href);
    } else if (item.way === "post") {
      const form = element("form", { method: "post", action: item.href });
      document.body.append(form);
      form.submit();
    } else location.assign(item.href);
  }

  key(event) {
    if (event.isComposing) return;
    if (event.key.startsWith("Arrow")) this.moved = true;
    if (event.key === "ArrowDown") this.select(this.at + 1);
    else if (event.key === "ArrowUp") this.select(this.at - 1);
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.choose(this.found.find((item) => item.key));
    else if (event.key === "Enter") this.choose(this.found[this.at]);
    else if (event.key === "Escape") this.dialog.close();
    else return;
    event.preventDefault();
  }
}

customElements.define("command-palette", CommandPalette);
