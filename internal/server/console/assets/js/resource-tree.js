// resource-tree adds buttons that fold the resources below another one. It shows a large tree as a
// virtual list: it contains the rows near the window, which the server renders, and empty space
// as high as the others.
import { element, icon, morph, parseElement } from "./html.js";

const largeTree = 500; // rows
const margin = 40; // rows that are loaded above and below the window
const retry = 2000; // ms

class ResourceTree extends HTMLElement {
  connectedCallback() {
    this.folded = this.folded || new Set(); // keys of rows
    this.watch = new MutationObserver(() => this.decorate());
    this.onChange = (event) => event.detail.id === "changes-rows" && this.changed();
    document.addEventListener("page-changed", this.onChange);
    if (this.total() > largeTree) this.virtualize();
    else {
      this.decorate();
      this.closest("nav").scrollTop = this.querySelector("li:has([aria-current])")?.offsetTop - 300;
    }
  }

  disconnectedCallback() {
    this.watch.disconnect();
    clearTimeout(this.again);
    document.removeEventListener("page-changed", this.onChange);
  }

  total() { return Number(this.querySelector("[data-total]")?.dataset.total ?? 0); }

  changed() {
    if (this.body) this.load();
    else if (this.total() > largeTree) this.virtualize();
  }

  // decorate runs again after the rows changed. Buttons of a replaced row are added again.
  decorate() {
    if (this.body) return;
    this.watch.disconnect();
    let hiddenBelow = Infinity;
    for (const row of this.querySelectorAll("li[data-depth]")) {
      const depth = Number(row.dataset.depth);
      if (depth <= hiddenBelow) hiddenBelow = Infinity;
      row.hidden = depth > hiddenBelow;
      this.button(row, () => this.decorate());
      if ("parent" in row.dataset && this.folded.has(row.dataset.key) && !row.hidden) hiddenBelow = depth;
    }
    this.watch.observe(this, { childList: true, subtree: true });
  }

  button(row, show) {
    let button = row.querySelector("button");
    if (!("parent" in row.dataset)) return button?.remove();
    if (!button) {
      button = element("button", { type: "button", className: "btn icon" });
      button.addEventListener("click", () => {
        const { key } = row.dataset;
        if (!this.folded.delete(key)) this.folded.add(key);
        show();
      });
      row.append(button);
    }
    const open = !this.folded.has(row.dataset.key);
    button.replaceChildren(icon(open ? "down" : "right"));
    button.ariaExpanded = String(open);
    button.ariaLabel = "Resources below " + row.querySelector(".nm > *").textContent;
  }

  virtualize() {
    this.watch.disconnect();
    this.setAttribute("virtual", "");
    this.port = this.closest("nav");
    this.port.tabIndex = 0;
    const list = this.querySelector("#changes-tree");
    list.removeAttribute("id"); // the server changes only the rows of a small tree
    this.body = element("ul", {}, ...[...list.querySelectorAll("li")].slice(0, 2 * margin));
    this.above = element("div", { ariaHidden: "true" });
    this.below = element("div", { ariaHidden: "true" });
    list.replaceChildren(this.above, this.body, this.below);
    this.first = 0;
    this.count = this.total();
    const pages = this.querySelector("nav");
    if (pages) pages.hidden = true;
    const from = Number(new URLSearchParams(location.search).get("row"));
    this.port.addEventListener("scroll", () => this.scrolled());
    this.space();
    if (from) this.port.scrollTop = from * this.height();
    this.load();
  }

  height() { return this.body.children[0]?.offsetHeight || 36; }

  // top is the place of the list in what scrolls.
  top() { return this.above.getBoundingClientRect().top - this.port.getBoundingClientRect().top + this.port.scrollTop; }

  space() {
    const height = this.height();
    this.above.style.height = `${this.first * height}px`;
    this.below.style.height = `${Math.max(0, this.count - this.first - this.body.children.length) * height}px`;
    this.body.ariaLabel = `${this.count} resources`;
    this.dataset.count = String(this.count);
  }

  // range returns the first row in the window and the number of rows that fit.
  range() {
    const height = this.height();
    return { first: Math.max(0, Math.floor((this.port.scrollTop - this.top()) / height)), fit: Math.ceil(this.port.clientHeight / height) };
  }

  // wanted returns the range of rows to load.
  wanted() {
    const { first, fit } = this.range();
    const count = Math.min(300, fit + 2 * margin);
    return { row: Math.max(0, Math.min(first - margin, this.count - count)), count };
  }

  scrolled() {
    const { first, fit } = this.range();
    const loaded = this.first + this.body.children.length;
    const near = margin / 2;
    if ((first - near < this.first && this.first > 0) || (first + fit + near > loaded && loaded < this.count)) this.load();
  }

  // load shows the rows near the window as they are now. One request runs at a time.
  async load() {
    if (this.loading) {
      this.dirty = true;
      return;
    }
    this.loading = true;
    this.dirty = false;
    const url = new URL(this.dataset.rows, location.href);
    for (const [name, value] of Object.entries(this.wanted())) url.searchParams.set(name, value);
    if (this.folded.size) url.searchParams.set("fold", [...this.folded].join(","));
    const chosen = new URLSearchParams(location.search).get("urn");
    if (chosen) url.searchParams.set("urn", chosen);
    try {
      const answer = await fetch(url, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw answer;
      this.show(await answer.json());
    } catch {
      clearTimeout(this.again);
      this.again = setTimeout(() => this.load(), retry);
    }
    this.loading = false;
    if (this.dirty) this.load();
  }

  show({ from, total, html }) {
    const focus = this.body.contains(document.activeElement) ? document.activeElement.closest("li")?.dataset.key : undefined;
    const fold = document.activeElement?.tagName === "BUTTON";
    morph(this.body, parseElement(html));
    this.body = this.querySelector("ul");
    this.first = from;
    this.count = total;
    for (const row of this.body.children) this.button(row, () => this.load());
    this.space();
    if (focus && !this.body.contains(document.activeElement)) {
      this.body.querySelector(`li[data-key="${CSS.escape(focus)}"] ${fold ? "button" : "a"}`)?.focus({ preventScroll: true });
    }
    this.scrolled();
  }
}

customElements.define("resource-tree", ResourceTree);
