// log-view shows the log of a deployment: one virtual list of the steps and the lines of open steps.
// The first visible row is the truth; the scroll bar only mirrors it, because browsers limit the
// height of an element.
import { copy } from "./copy-text.js";
import { button, element, icon } from "./html.js";
import { enabled, typing } from "./keys.js";
import { LogRows, times } from "./log-rows.js";
import { LogSearch } from "./log-search.js";
import { LogSource } from "./log-source.js";
import { plain } from "./log-text.js";

const tallest = 8e6; // pixels of the scrolled element
const headHeight = 28; // pixels of the header of the step that is at the top, which covers the first row
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
    this.time = 1;
    this.wrap = false;
    this.atEnd = false; // the last row is at the bottom
    this.source = new LogSource(this.dataset.base, this.attempt, (step, lines) => this.grew(step, lines));
    this.build();
    this.readSteps();
    this.ready = true;
    const wanted = Number(query.get("step"));
    if (wanted) this.open.add(wanted);
    this.layout();
    this.goTo(wanted, true);
    this.listen();
    this.paint();
  }

  // goTo shows what the URL names; if it names nothing, the page begins with the cause of a failure, the first error or the end.
  goTo(wanted, opening = false) {
    const range = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    if (opening) this.following = this.running && !range && !wanted;
    if (range && wanted) {
      this.selected = { step: wanted, from: Number(range[1]) - 1, to: Number(range[2] ?? range[1]) - 1 };
      this.showLine(wanted, this.selected.from);
    } else if (wanted) this.move(this.rowOf(wanted, -1));
    else if (opening && "failed" in this.dataset) this.search.nextError(this.dataset.cause?.split(":").map(Number) ?? []);
    else if (this.following) this.move(Infinity);
  }

  listen() {
    this.stop = new AbortController();
    const { signal } = this.stop;
    const on = (name, act) => document.addEventListener(name, act, { signal });
    on("page-changed", (event) => this.pageChanged(event.detail.id));
    on("log-grew", (event) => this.counted(event.detail));
    on("keydown", (event) => this.key(event));
    on("click", (event) => this.followLink(event));
    on("selectionchange", () => this.held && !this.selecting() && this.layout());
    for (const name of ["hashchange", "popstate"]) window.addEventListener(name, () => this.goTo(this.stepOfURL()), { signal });
    this.resized = new ResizeObserver(() => this.layout());
    this.resized.observe(this.port);
  }

  stepOfURL() { return Number(new URLSearchParams(location.search).get("step")); }

  pageChanged(id) {
    if (id === "log-steps") this.readSteps();
    const split = id === "drawer" && document.querySelector("#drawer [data-split]");
    if (split) this.closest(".split").className = split.dataset.split;
  }

  // followLink shows a step or a line of the log without loading the page again.
  followLink(event) {
    const a = event.target.closest?.(".steps a[data-goto], .cause a[href*='#L']");
    if (!a || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0) return;
    const to = new URL(a.href);
    const step = Number(to.searchParams.get("step"));
    if (to.pathname !== location.pathname || !this.steps.some((s) => s.number === step)) return;
    if (to.searchParams.has("try") && to.searchParams.get("try") !== this.attempt) return;
    event.preventDefault();
    if (a.dataset.goto) to.hash = "";
    history.pushState(null, "", to);
    this.open.add(step);
    this.decided.add(step);
    for (const other of document.querySelectorAll(".steps a")) {
      if (other.dataset.goto === String(step)) other.setAttribute("aria-current", "step");
      else other.removeAttribute("aria-current");
    }
    this.follow(false);
    this.layout();
    this.goTo(step);
    const box = this.port.getBoundingClientRect();
    if (box.bottom > window.innerHeight + 1 || box.top < 0) this.closest(".logw").scrollIntoView();
  }

  disconnectedCallback() {
    this.stop?.abort();
    this.resized?.disconnect();
  }

  build() {
    const tool = (name, label, click, classes = "btn icon") => {
      const b = button(classes, name, label);
      b.addEventListener("click", click);
      return b;
    };
    const labelled = (classes, name, text, title, click) => {
      const b = element("button", { type: "button", className: classes, title }, icon(name), element("span", { textContent: text }));
      b.addEventListener("click", click);
      return b;
    };
    this.search = new LogSearch(this);
    const { search } = this;
    this.timeButton = tool("clock", "", () => this.cycleTime());
    this.wrapButton = tool("wrap", "Wrap long lines: w", () => this.toggleWrap());
    this.wrapButton.setAttribute("aria-pressed", "false");
    this.followButton = labelled("btn small follow", "follow", "", "Follow the end of the log: f", () => this.follow(!this.following));
    this.fullButton = tool("expand", "Full screen: z", () => this.toggleFull());
    this.fullButton.setAttribute("aria-pressed", "false");
    const download = element("a", { className: "btn icon", href: `${this.dataset.base}/raw?download=on&try=${this.attempt}`, title: "Download", ariaLabel: "Download" }, icon("download"));
    search.options.append(
      tool("up", "Previous hit: N", () => search.next(-1)), tool("down", "Next hit: n", () => search.next(1)),
      element("label", { className: "hidephone", title: "Regular expression" }, search.regex, " .*"), element("label", { className: "hidephone", title: "Upper and lower case differ" }, search.sensitive, " Aa"));
    search.errorButton = labelled("btn small", "down", "Next error", "Next error: e", () => search.nextError());
    search.errorButton.hidden = !("failed" in this.dataset);
    const bar = element("div", { className: "logbar" },
      element("span", { className: "search" }, icon("search"), search.input, element("kbd", { className: "hidephone", textContent: "Ctrl F" })),
      search.options, search.count, search.errorCount, element("span", { className: "push" }), search.errorButton,
      element("span", { className: "hidephone acts2" }, this.timeButton, this.wrapButton, element("span", { className: "sep" }),
        tool("link", "Copy a link to the selected lines: y", () => this.copyLink()), tool("copy", "Copy the selected lines", () => this.copyLines()), download),
      this.fullButton);
    bar.setAttribute("role", "toolbar");
    bar.setAttribute("aria-label", "Log");
    this.sizer = element("div");
    this.list = element("div");
    this.rows = new LogRows(this, this.list);
    this.head = element("div", { className: "logh" });
    this.head.addEventListener("click", (event) => this.clicked(event));
    this.port = element("div", { className: "log", tabIndex: 0 }, this.sizer, this.list);
    this.port.setAttribute("role", "log");
    this.port.setAttribute("aria-live", "off");
    this.port.setAttribute("aria-label", "Log");
    this.port.addEventListener("scroll", () => this.scrolled());
    this.port.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.port.addEventListener("keydown", (event) => this.scrollKey(event));
    this.list.addEventListener("click", (event) => this.clicked(event));
    this.list.addEventListener("copy", (event) => this.copySelection(event));
    this.paintTime();
    this.querySelector("#log-steps").before(bar, element("div", { className: "logbox" }, this.head, this.port, search.marks, this.followButton));
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
    this.rowHeight = parseFloat(getComputedStyle(this.port).lineHeight) || 20;
    this.port.classList.toggle("wide", this.steps.some((s) => s.lines > 999_999));
    this.held = this.following && this.selecting();
    if (this.following && !this.held) this.toEnd();
    else if (this.running && at > before) this.unseen += at - before;
    if (at !== before) this.search.draw();
    this.paint();
  }

  // offset is the distance of the first row from the top, so that the header covers it and no other one.
  offset() { return headHeight - this.rowHeight; }
  visible() { return Math.max(1, Math.floor((this.port.clientHeight - this.offset()) / this.rowHeight)); }
  // Wrapped lines can be higher than the window, so that any row can be the first one.
  lastTop() { return Math.max(0, this.total - (this.wrap ? 1 : this.visible())); }
  scaled() { return this.total * this.rowHeight > tallest; }
  toEnd() { this.top = this.lastTop(); this.atEnd = true; }

  // rowOf returns the row of a step's line, or of its header if n is -1 or the step is folded.
  rowOf(step, n) {
    const s = this.steps.find((one) => one.number === step);
    return s ? s.start + (this.open.has(step) ? 1 + n : 0) : 0;
  }

  // mirror moves the scroll bar to the first visible row.
  mirror() {
    const height = `${Math.min(tallest, this.total * this.rowHeight + (this.wrap ? this.port.clientHeight - this.rowHeight : this.offset()))}px`;
    if (this.sizer.style.height !== height) this.sizer.style.height = height;
    const range = this.port.scrollHeight - this.port.clientHeight;
    const wanted = this.lastTop() ? (this.top / this.lastTop()) * range : 0;
    const exact = this.scaled() ? wanted : Math.min(range, this.top * this.rowHeight);
    if (Math.abs(this.port.scrollTop - exact) > 1) this.port.scrollTop = exact;
    this.mirrored = this.port.scrollTop;
  }

  scrolled() {
    if (this.port.scrollTop === this.mirrored) return; // it was moved by mirror, or sideways
    const range = this.port.scrollHeight - this.port.clientHeight;
    const top = this.scaled() ? (this.port.scrollTop / Math.max(1, range)) * this.lastTop() : this.port.scrollTop / this.rowHeight;
    this.moved(top);
  }

  wheel(event) {
    if (!this.scaled() || event.ctrlKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    event.preventDefault();
    this.move(this.top + (event.deltaMode === 1 ? event.deltaY : event.deltaY / this.rowHeight));
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
    b.lastChild.textContent = this.following ? "Following" : this.unseen ? `${this.unseen.toLocaleString("en")} new lines` : "Follow";
    b.setAttribute("aria-pressed", String(this.following));
  }

  paint() {
    if (!this.steps.length) return;
    const first = this.wrap && this.atEnd ? Math.max(0, this.total - this.visible() - 2) : Math.floor(this.top);
    const last = Math.min(this.total, first + this.visible() + 2);
    this.top = this.rows.paint(first, last, this.top);
    this.mirror();
    this.list.style.top = `${this.port.scrollTop}px`;
    this.paintHead();
    this.paintFollow();
  }

  // paintHead shows the step of the first row, which its header covers, and its lines on the screen.
  paintHead() {
    const s = this.steps.findLast((one) => one.start <= Math.ceil(this.top)) ?? this.steps[0];
    if (!s) return;
    const from = Math.min(s.lines, Math.max(1, Math.ceil(this.top) - s.start + 1));
    const to = Math.min(s.lines, Math.floor(this.top) + this.visible() - s.start - 1);
    this.rows.step(this.head, s, this.open.has(s.number) && s.lines ? `line ${from.toLocaleString("en")} to ${Math.max(from, to).toLocaleString("en")} of ${s.lines.toLocaleString("en")}` : "");
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
    this.paintTime();
    this.paint();
  }

  paintTime() {
    this.timeButton.title = this.timeButton.ariaLabel = `Times: ${times[this.time]} (t)`;
    this.timeButton.setAttribute("aria-pressed", String(this.time > 0));
  }

  toggleFull() {
    const on = this.closest(".logw").classList.toggle("full");
    this.fullButton.setAttribute("aria-pressed", String(on));
    this.port.focus();
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
    const number = event.target.closest(".ln > a");
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
    this.querySelector(`[data-toggle="${step}"]`)?.focus();
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
      t: () => this.cycleTime(), z: () => this.toggleFull(), w: () => this.toggleWrap(), y: () => this.copyLink(), "[": () => moveStep(-1), "]": () => moveStep(1),
      Escape: this.closest(".logw").classList.contains("full") ? () => this.toggleFull() : undefined,
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

customElements.define("log-view", LogView);
