// resource-tree adds buttons that fold the resources below another one.
class ResourceTree extends HTMLElement {
  connectedCallback() {
    this.folded = this.folded || new Set();
    this.watch = new MutationObserver(() => this.decorate());
    this.decorate();
  }

  disconnectedCallback() {
    this.watch.disconnect();
  }

  // decorate runs again after the rows changed. Buttons of a replaced row are added again.
  decorate() {
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
      this.button(row, urn, parent);
      if (parent && this.folded.has(urn) && hiddenBelow === Infinity) hiddenBelow = depth;
    });
    this.watch.observe(this, { childList: true, subtree: true });
  }

  button(row, urn, parent) {
    let button = row.querySelector(".tree-fold");
    if (!parent) {
      button?.remove();
      return;
    }
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "tree-fold";
      button.addEventListener("click", () => {
        const key = row.querySelector("a").title;
        if (!this.folded.delete(key)) this.folded.add(key);
        this.decorate();
      });
      row.querySelector("td").prepend(button);
    }
    const open = !this.folded.has(urn);
    button.textContent = open ? "▾" : "▸";
    button.setAttribute("aria-expanded", String(open));
    button.setAttribute("aria-label", "Resources below " + row.querySelector("a").textContent);
  }
}

customElements.define("resource-tree", ResourceTree);
