// resource-tree adds buttons that fold the resources below another one. It shows a large tree as a
// virtual list: the table contains the rows near the window, which the server renders, and empty rows
// as high as the others.
import { element, morph, parseElement } from "./html.js";

const largeTree = 500; // rows
const margin = 40; // rows that are loaded above and below the window
const retry = 2000; // milliseconds

class ResourceTree extends HTMLElement {
  connectedCallback() {
    this.folded = this.folded || new Set(); // URNs, or keys of a virtual tree
    this.watch = new MutationObserver(() => this.decorate());
    this.onChange = (event) => event.detail.id === "changes-rows" && this.changed();
    document.addEventListener("page-changed", this.onChange);
    if (this.total() > largeTree) this.virtualize();
    else this.decorate();
  }

  disconnectedCallback() {
    this.watch.disconnect();
    clearTimeout(this.again);
    document.removeEventListener("page-changed", this.onChange);
  }

  total() { return Number(this.querySelector("#changes-rows [data-total]")?.dataset.total ?? 0); }

  changed() {
    if (this.body) this.load();
    else if (this.total() > largeTree) this.virtualize();
  }

  // decorate runs again after the rows changed. Buttons of a replaced row are added again.
  decorate() {
    if (this.body) return;
    this.watch.disconnect();
    const rows = [...this.querySelectorAll("tr[data-depth]")];
    let hiddenBelow = Infinity;
    rows.forEach((row, i) => {
      const depth = Number(row.dataset.depth);
      if (depth <= hiddenBelow) hiddenBelow = Infinity;
      row.hidden = depth > hiddenBelow;
      const urn = row.querySelector("a").title;
      const next = rows[i + 1];
      const parent = next !== undefined && Number(next.dataset.depth) > depth;
      this.button(row, parent, () => row.querySelector("a").title, () => this.decorate());
      if (parent && this.folded.has(urn) && hiddenBelow === Infinity) hiddenBelow = depth;
    });
    this.watch.observe(this, { childList: true, subtree: true });
  }

  button(row, parent, name, show) {
    let button = row.querySelector(".tree-fold");
    if (!parent) {
      button?.remove();
      return;
    }
    if (!button) {
      button = element("button", { type: "button", className: "tree-fold" });
      button.addEventListener("click", () => {
        const key = name();
        if (!this.folded.delete(key)) this.folded.add(key);
        show();
      });
      row.querySelector("td").prepend(button);
    }
    const open = !this.folded.has(name());
    button.textContent = open ? "▾" : "▸";
    button.ariaExpanded = String(open);
    button.ariaLabel = "Resources below " + row.querySelector("a").textContent;
  }

  virtualize() {
    this.watch.disconnect();
    this.classList.add("virtual");
    this.port = this.querySelector(".scroll");
    Object.assign(this.port, { tabIndex: 0, role: "region", ariaLabel: "Resources" });
    this.body = this.querySelector("tbody");
    this.body.removeAttribute("id"); // the rows of a small tree have changes of their own
    for (const row of [...this.body.children].slice(2 * margin)) row.remove();
    this.above = this.spacer();
    this.below = this.spacer();
    this.body.before(this.above);
    this.body.after(this.below);
    this.first = 0;
    this.rows = this.total();
    const pager = this.querySelector(".pager");
    if (pager) pager.hidden = true;
    const from = Number(new URLSearchParams(location.search).get("from"));
    this.port.addEventListener("scroll", () => this.scrolled());
    this.space();
    if (from) this.port.scrollTop = from * this.height();
    this.load();
  }

  spacer() {
    return element("tbody", { className: "tree-space", ariaHidden: "true" }, element("tr"));
  }

  height() { return this.body.rows[0]?.offsetHeight || 36; }

  space() {
    const height = this.height();
    this.above.rows[0].style.height = `${this.first * height}px`;
    this.below.rows[0].style.height = `${Math.max(0, this.rows - this.first - this.body.rows.length) * height}px`;
    this.querySelector("table").setAttribute("aria-rowcount", String(this.rows + 1));
  }

  // wanted returns the range of rows to load.
  wanted() {
    const first = Math.floor(this.port.scrollTop / this.height());
    const count = Math.ceil(this.port.clientHeight / this.height()) + 2 * margin;
    return { from: Math.max(0, Math.min(first - margin, this.rows - count)), count: Math.min(300, count) };
  }

  scrolled() {
    const first = Math.floor(this.port.scrollTop / this.height());
    const last = first + Math.ceil(this.port.clientHeight / this.height());
    const loaded = this.first + this.body.rows.length;
    const near = margin / 2;
    if ((first - near < this.first && this.first > 0) || (last + near > loaded && loaded < this.rows)) this.load();
  }

  // load shows the rows near the window as they are now. One request runs at a time.
  async load() {
    if (this.loading) {
      this.dirty = true;
      return;
    }
    this.loading = true;
    this.dirty = false;
    const { from, count } = this.wanted();
    const query = new URLSearchParams({ from, count });
    if ("all" in this.dataset) query.set("all", "1");
    if (this.folded.size) query.set("fold", [...this.folded].join(","));
    try {
      const answer = await fetch(`${this.dataset.rows}?${query}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(answer.statusText);
      this.show(await answer.json());
    } catch {
      clearTimeout(this.again);
      this.again = setTimeout(() => this.load(), retry);
    }
    this.loading = false;
    if (this.dirty) this.load();
  }

  show({ from, total, html }) {
    const focus = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : undefined;
    const fold = document.activeElement?.classList.contains("tree-fold");
    morph(this.body, parseElement(html));
    this.body = this.querySelector("tbody:not(.tree-space)");
    this.first = from;
    this.rows = total;
    for (const row of this.body.rows) {
      this.button(row, "parent" in row.dataset, () => row.dataset.key, () => this.load());
    }
    this.space();
    if (focus && !this.body.contains(document.activeElement)) {
      this.body.querySelector(`tr[data-key="${CSS.escape(focus)}"] ${fold ? "button" : "a"}`)?.focus({ preventScroll: true });
    }
    this.scrolled();
  }
}

customElements.define("resource-tree", ResourceTree);
