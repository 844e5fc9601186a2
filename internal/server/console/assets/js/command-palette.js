// command-palette finds pages and actions by name: Ctrl+K or Cmd+K.
class CommandPalette extends HTMLElement {
  connectedCallback() {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button small";
    button.textContent = "Find… ";
    const key = document.createElement("kbd");
    key.textContent = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";
    button.append(key);
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
    this.dialog = document.createElement("dialog");
    this.dialog.className = "palette-dialog";
    this.dialog.setAttribute("aria-label", "Find a page or action");
    this.input = document.createElement("input");
    this.input.type = "search";
    this.input.placeholder = "Stack, deployment, pool, agent, action…";
    this.input.setAttribute("aria-label", "Find a page or action");
    this.input.setAttribute("role", "combobox");
    this.input.setAttribute("aria-expanded", "true");
    this.input.setAttribute("aria-controls", "palette-list");
    this.list = document.createElement("ul");
    this.list.id = "palette-list";
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Results");
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.find(), 120);
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.dialog.append(this.input, this.list);
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
      const option = document.createElement("li");
      option.setAttribute("role", "option");
      option.id = `palette-${i}`;
      option.dataset.href = item.href;
      const kind = document.createElement("span");
      kind.className = "dim";
      kind.textContent = item.kind;
      option.append(item.text, " ", kind);
      option.addEventListener("click", () => location.assign(item.href));
      return option;
    }));
    if (found.length === 0) {
      const none = document.createElement("li");
      none.setAttribute("role", "option");
      none.setAttribute("aria-disabled", "true");
      none.className = "dim";
      none.textContent = "Nothing found";
      this.list.append(none);
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
    } else return;
    event.preventDefault();
  }
}

customElements.define("command-palette", CommandPalette);
