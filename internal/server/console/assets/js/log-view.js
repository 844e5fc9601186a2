// log-view shows the log of a deployment: one virtual list of the steps and the lines of open steps.
// The first visible row is the truth; the scroll bar only mirrors it, because browsers limit the
// height of an element.
import { copy } from "./copy-text.js";
import { element } from "./html.js";
import { enabled, typing } from "./keys.js";
import { LogRows, rowHeight, times } from "./log-rows.js";
import { LogSearch } from "./log-search.js";
import { LogSource } from "./log-source.js";
import { plain } from "./log-text.js";

const tallest = 8e6; // pixels of the scrolled element
const shortLog = 500; // lines up to which all steps are open

class LogView extends HTMLElement {
  connectedCallback() {
    if (this.port) return;
    const query = new URLSearchParams(location.search);
    this.attempt = this.dataset.try;
    this.running = "running" in this.dataset;
    this.steps = [];
    this.open = new Set(); // numbers of open steps
    this.decided = new Set(); // and of those that were opened once, or that the user has folded
    this.top = 0; // the first visible row, with a fraction
    this.total = 0;
    this.unseen = 0; // lines that arrived below the window
    this.time = 0;
    this.wrap = false;
    this.atEnd = false; // the last row is at the bottom
    this.source = new LogSource(this.dataset.base, this.attempt, (step, lines) => this.grew(step, lines));
    this.build();
    this.readSteps();
    this.ready = true;
    const wanted = Number(query.get("step"));
    if (wanted) this.open.add(wanted);
    this.layout();
    this.goTo(wanted);
    this.listen();
    this.classList.add("enhanced");
    this.paint();
  }

  // goTo shows what the URL names, otherwise the first error or the end.
  goTo(wanted) {
    const range = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    this.following = this.running && !range && !wanted;
    if (range && wanted) {
      this.selected = { step: wanted, from: Number(range[1]) - 1, to: Number(range[2] ?? range[1]) - 1 };
      this.showLine(wanted, this.selected.from);
    } else if (wanted) this.move(this.rowOf(wanted, -1));
    else if ("failed" in this.dataset) this.search.nextError(true);
    else if (this.following) this.move(Infinity);
  }

  listen() {
    this.stop = new AbortController();
    const on = (name, act) => document.addEventListener(name, act, { signal: this.stop.signal });
    on("page-changed", (event) => event.detail.id === "log-steps" && this.readSteps());
    on("log-grew", (event) => this.counted(event.detail));
    on("keydown", (event) => this.key(event));
    on("selectionchange", () => this.held && !this.selecting() && this.layout());
    window.addEventListener("hashchange", () => this.goTo(Number(new URLSearchParams(location.search).get("step"))), { signal: this.stop.signal });
    this.resized = new ResizeObserver(() => this.layout());
    this.resized.observe(this.port);
  }

  disconnectedCallback() {
    this.stop?.abort();
    this.resized?.disconnect();
  }

  build() {
    const button = (text, title, click) => {
      const b = element("button", { type: "button", className: "btn small", textContent: text, title });
      b.addEventListener("click", click);
      return b;
    };
    this.search = new LogSearch(this);
    const { search } = this;
    this.timeButton = button("Times: off", "Show times (t)", () => this.cycleTime());
    this.wrapButton = button("Wrap", "Wrap long lines (w)", () => this.toggleWrap());
    this.wrapButton.setAttribute("aria-pressed", "false");
    this.followButton = button("", "Follow the end of the log (f)", () => this.follow(!this.following));
    const bar = element("div", { className: "log-bar" },
      search.input, search.count,
      button("↑", "Previous hit (N)", () => search.next(-1)), button("↓", "Next hit (n)", () => search.next(1)),
      element("label", {}, search.regex, "regexp"), element("label", {}, search.sensitive, "Aa"),
      button("Next error", "Next error (e)", () => search.nextError()),
      this.timeButton, this.wrapButton,
      button("Copy link", "Copy a link to the selected lines (y)", () => this.copyLink()),
      button("Copy lines", "Copy the selected lines", () => this.copyLines()),
      this.followButton);
    this.sizer = element("div", { className: "log-sizer" });
    this.list = element("div", { className: "log-rows" });
    this.rows = new LogRows(this, this.list);
    this.port = element("div", { className: "log-port", tabIndex: 0 }, this.sizer, this.list);
    this.port.setAttribute("role", "log");
    this.port.setAttribute("aria-live", "off");
    this.port.setAttribute("aria-label", "Log");
    this.port.addEventListener("scroll", () => this.scrolled());
    this.port.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.port.addEventListener("keydown", (event) => this.scrollKey(event));
    this.list.addEventListener("click", (event) => this.clicked(event));
    this.list.addEventListener("copy", (event) => this.copySelection(event));
    this.prepend(bar, element("div", { className: "log-frame" }, this.port, search.marks));
  }

  readSteps() {
    const old = new Map(this.steps.map((s) => [s.number, s]));
    this.steps = [...this.querySelectorAll("li[data-step]")].map((li) => {
      const number = Number(li.dataset.step);
      const known = old.get(number);
      return {
        number, name: li.dataset.name, status: li.dataset.status, took: li.dataset.took, exit: li.dataset.exit,
        lines: Math.max(Number(li.dataset.lines), known?.lines ?? 0),
      };
    });
    this.decide();
    if (this.ready) this.layout();
  }

  // decide opens the steps that users want to see first, once for each step.
  decide() {
    const total = this.steps.reduce((sum, s) => sum + s.lines, 0);
    for (const s of this.steps) {
      const started = s.status !== "queued" && s.lines > 0;
      if (this.decided.has(s.number) || !(s.status === "running" || s.status === "failed" || (started && total <= shortLog))) continue;
      this.decided.add(s.number);
      this.open.add(s.number);
    }
  }

  // counted takes the number of a step's lines from the page's event stream.
  counted({ try: attempt, step, lines, done }) {
    if (String(attempt) !== this.attempt) return;
    if (done) this.running = false;
    this.decide();
    this.grew(step, lines);
  }

  grew(number, lines) {
    const s = this.steps.find((one) => one.number === number);
    if (s && lines > s.lines) {
      s.lines = lines;
      this.search.grew();
    }
    this.layout();
  }

  // layout computes the rows: a header for each step, then its lines if it is open.
  layout() {
    const before = this.total;
    let at = 0;
    for (const s of this.steps) {
      s.start = at;
      at += 1 + (this.open.has(s.number) ? s.lines : 0);
    }
    this.total = at;
    this.held = this.following && this.selecting();
    if (this.following && !this.held) this.toEnd();
    else if (this.running && at > before) this.unseen += at - before;
    if (at !== before) this.search.draw();
    this.paint();
  }

  visible() { return Math.max(1, Math.floor(this.port.clientHeight / rowHeight)); }
  // Wrapped lines can be higher than the window, so that any row can be the first one.
  lastTop() { return Math.max(0, this.total - (this.wrap ? 1 : this.visible())); }
  scaled() { return this.total * rowHeight > tallest; }
  toEnd() { this.top = this.lastTop(); this.atEnd = true; }

  // rowOf returns the row of a step's line, or of its header if n is -1 or the step is folded.
  rowOf(step, n) {
    const s = this.steps.find((one) => one.number === step);
    return s ? s.start + (this.open.has(step) ? 1 + n : 0) : 0;
  }

  // mirror moves the scroll bar to the first visible row.
  mirror() {
    const height = `${Math.min(tallest, this.total * rowHeight + (this.wrap ? this.port.clientHeight - rowHeight : 0))}px`;
    if (this.sizer.style.height !== height) this.sizer.style.height = height;
    const range = this.port.scrollHeight - this.port.clientHeight;
    const wanted = this.lastTop() ? (this.top / this.lastTop()) * range : 0;
    const exact = this.scaled() ? wanted : this.top * rowHeight;
    if (Math.abs(this.port.scrollTop - exact) > 1) this.port.scrollTop = exact;
    this.mirrored = this.port.scrollTop;
  }

  scrolled() {
    if (this.port.scrollTop === this.mirrored) return; // it was moved by mirror, or sideways
    const range = this.port.scrollHeight - this.port.clientHeight;
    const top = this.scaled() ? (this.port.scrollTop / Math.max(1, range)) * this.lastTop() : this.port.scrollTop / rowHeight;
    this.moved(top);
  }

  wheel(event) {
    if (!this.scaled() || event.ctrlKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    event.preventDefault();
    this.move(this.top + (event.deltaMode === 1 ? event.deltaY : event.deltaY / rowHeight));
  }

  scrollKey(event) {
    const page = this.visible() - 1;
    const to = { ArrowDown: this.top + 1, ArrowUp: this.top - 1, PageDown: this.top + page, PageUp: this.top - page, Home: 0, End: Infinity }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(to);
    if (event.key === "End" && this.running) this.follow(true);
  }

  move(to) {
    if (to === Infinity) {
      this.toEnd();
      this.paint();
    } else this.moved(to);
  }

  // moved takes a row as the first visible one. Any movement upwards ends following.
  moved(to) {
    const top = Math.max(0, Math.min(to, this.lastTop()));
    if (top < this.top - 0.5) this.follow(false);
    this.top = top;
    this.atEnd = false;
    this.paint();
  }

  follow(on) {
    if (this.following === on) return;
    this.following = on && this.running;
    this.unseen = 0;
    if (this.following) this.move(Infinity);
    this.paintFollow();
  }

  paintFollow() {
    const b = this.followButton;
    b.hidden = !this.running;
    b.textContent = this.following ? "● following" : this.unseen ? `${this.unseen.toLocaleString("en")} new lines ↓` : "follow";
    b.setAttribute("aria-pressed", String(this.following));
  }

  paint() {
    if (!this.steps.length) return;
    const first = this.wrap && this.atEnd ? Math.max(0, this.total - this.visible() - 2) : Math.floor(this.top);
    const last = Math.min(this.total, first + this.visible() + 2);
    this.top = this.rows.paint(first, last, this.top);
    this.mirror();
    this.list.style.top = `${this.port.scrollTop}px`;
    this.paintFollow();
  }

  // selecting reports that the user selects text, so that following the log must wait.
  selecting() {
    const selection = document.getSelection();
    return !selection.isCollapsed && this.list.contains(selection.anchorNode);
  }

  // copySelection copies the selected text, also of lines that are not on the screen. Headers of steps have none.
  async copySelection(event) {
    const selection = document.getSelection();
    if (!this.selecting() || !this.list.contains(selection.focusNode)) return;
    const { startContainer, startOffset, endContainer, endOffset } = selection.getRangeAt(0);
    const from = this.rows.place(startContainer, startOffset);
    const to = this.rows.place(endContainer, endOffset);
    if (!from || !to) return;
    event.preventDefault();
    const parts = this.steps.filter((s) => s.number >= from.step && s.number <= to.step && this.open.has(s.number))
      .map((s) => [s.number, s.number === from.step ? Math.max(0, from.n) : 0, s.number === to.step ? to.n : s.lines - 1]);
    const text = (rows) => plain(rows.flat(), from.offset, to.offset);
    const here = parts.map((part) => this.source.loaded(...part));
    if (here.every(Boolean)) event.clipboardData.setData("text/plain", text(here));
    else copy(text(await Promise.all(parts.map((part) => this.source.read(...part)))));
  }

  cycleTime() {
    this.time = (this.time + 1) % times.length;
    this.timeButton.textContent = `Times: ${times[this.time]}`;
    this.paint();
  }

  toggleWrap() {
    const end = this.atEnd || this.top >= this.lastTop();
    this.wrap = !this.wrap;
    this.classList.toggle("wrap", this.wrap);
    this.wrapButton.setAttribute("aria-pressed", String(this.wrap));
    this.port.scrollLeft = 0;
    if (end) this.move(Infinity);
    else this.paint();
  }

  clicked(event) {
    const toggle = event.target.closest("[data-toggle]");
    if (toggle) return this.toggle(Number(toggle.dataset.toggle));
    const number = event.target.closest(".log-number");
    if (!number) return;
    event.preventDefault();
    const step = Number(number.dataset.step);
    const line = Number(number.dataset.line);
    if (event.shiftKey && this.selected?.step === step) {
      this.selected = { step, from: Math.min(line, this.selected.from), to: Math.max(line, this.selected.to) };
    } else this.selected = { step, from: line, to: line };
    history.replaceState(null, "", this.link(step, this.selected.from, this.selected.to));
    this.follow(false);
    this.paint();
  }

  toggle(step) {
    this.decided.add(step);
    if (this.open.has(step)) this.open.delete(step);
    else this.open.add(step);
    this.follow(false);
    const query = new URLSearchParams(location.search);
    if (this.open.has(step)) query.set("step", step);
    else query.delete("step");
    history.replaceState(null, "", `?${query}`);
    this.layout();
    this.list.querySelector(`[data-toggle="${step}"]`)?.focus();
  }

  link(step, from, to) {
    const query = new URLSearchParams(location.search);
    query.set("view", "log");
    query.set("step", step);
    query.set("try", this.attempt);
    return `?${query}#L${from + 1}${to > from ? `-L${to + 1}` : ""}`;
  }

  showLine(step, n) {
    if (!this.open.has(step)) {
      this.open.add(step);
      this.layout();
    }
    this.follow(false);
    this.move(this.rowOf(step, n) - 3);
  }

  copyLink() {
    if (this.selected) copy(new URL(this.link(this.selected.step, this.selected.from, this.selected.to), location.href).href);
  }

  async copyLines() {
    if (this.selected) copy(`${plain(await this.source.read(this.selected.step, this.selected.from, this.selected.to))}\n`);
  }

  key(event) {
    const { search } = this;
    if ((event.ctrlKey || event.metaKey) && event.key === "f" && document.activeElement !== search.input) {
      event.preventDefault(); // a second press opens the browser's own
      search.input.focus();
      search.input.select();
      return;
    }
    if (!enabled() || event.ctrlKey || event.metaKey || event.altKey || typing(event) || document.querySelector("dialog[open]")) return;
    const moveStep = (by) => {
      const at = this.steps.findLastIndex((s) => s.start <= Math.ceil(this.top));
      const next = this.steps[Math.max(0, Math.min(this.steps.length - 1, at + by))];
      if (next) this.move(next.start);
    };
    const act = {
      f: () => this.follow(!this.following), n: () => search.next(1), N: () => search.next(-1), e: () => search.nextError(),
      t: () => this.cycleTime(), w: () => this.toggleWrap(), y: () => this.copyLink(), "[": () => moveStep(-1), "]": () => moveStep(1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

customElements.define("log-view", LogView);
