// log-view shows the log of a deployment: one virtual list of the steps and the lines of open steps.
// The first visible row is the truth; the scroll bar only mirrors it, because browsers limit the
// height of an element. Lines become text nodes, never HTML.
import { copy } from "./copy-text.js";
import { enabled, typing } from "./keys.js";
import { flags, LogSource } from "./log-source.js";
import { plain, render } from "./log-text.js";

const rowHeight = 24;
const tallest = 8e6; // pixels of the scrolled element
const shortLog = 500; // lines up to which all steps are open
const times = ["off", "clock", "since start", "since previous"];
const longPause = 5000; // milliseconds between lines that are marked

function element(tag, properties = {}, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}

class LogView extends HTMLElement {
  connectedCallback() {
    if (this.port) return;
    const query = new URLSearchParams(location.search);
    this.attempt = this.dataset.try;
    this.running = "running" in this.dataset;
    this.steps = [];
    this.open = new Set(); // numbers of open steps
    this.decided = new Set(); // and of those that were opened once, or that the user has folded
    this.top = 0;
    this.time = 0;
    this.hits = [];
    this.hit = -1;
    this.rows = new Map();
    this.source = new LogSource(this.dataset.base, this.attempt, (step, lines) => this.grew(step, lines));
    this.build();
    this.readSteps();
    this.ready = true;
    const wanted = Number(query.get("step"));
    if (wanted) this.open.add(wanted);
    this.layout();
    const range = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    this.following = this.running && !range && !wanted;
    if (range && wanted) {
      this.selected = { step: wanted, from: Number(range[1]) - 1, to: Number(range[2] ?? range[1]) - 1 };
      this.showLine(wanted, this.selected.from);
    } else if (wanted) this.move(this.startOf(wanted));
    else if ("failed" in this.dataset) this.nextError();
    else if (this.following) this.move(Infinity);
    this.onChange = (event) => event.detail.id === "log-steps" && this.readSteps();
    this.onGrew = (event) => this.counted(event.detail);
    this.onKey = (event) => this.key(event);
    document.addEventListener("page-changed", this.onChange);
    document.addEventListener("log-grew", this.onGrew);
    document.addEventListener("keydown", this.onKey);
    this.resized = new ResizeObserver(() => this.paint());
    this.resized.observe(this.port);
    this.classList.add("enhanced");
    this.paint();
  }

  disconnectedCallback() {
    document.removeEventListener("page-changed", this.onChange);
    document.removeEventListener("log-grew", this.onGrew);
    document.removeEventListener("keydown", this.onKey);
    this.resized?.disconnect();
  }

  build() {
    const button = (text, title, click) => {
      const b = element("button", { type: "button", className: "button small", textContent: text, title });
      b.addEventListener("click", click);
      return b;
    };
    this.input = element("input", { type: "search", placeholder: "Find in the log", ariaLabel: "Find in the log" });
    this.input.addEventListener("input", () => this.findSoon());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.nextHit(event.shiftKey ? -1 : 1);
    });
    this.regex = element("input", { type: "checkbox" });
    this.sensitive = element("input", { type: "checkbox" });
    for (const box of [this.regex, this.sensitive]) box.addEventListener("change", () => this.findSoon());
    this.count = element("span", { className: "dim log-count" });
    this.count.setAttribute("role", "status");
    this.timeButton = button("Times: off", "Show times (t)", () => this.cycleTime());
    this.followButton = button("", "Follow the end of the log (f)", () => this.follow(!this.following));
    const bar = element("div", { className: "log-bar" },
      this.input, this.count,
      button("↑", "Previous hit (N)", () => this.nextHit(-1)), button("↓", "Next hit (n)", () => this.nextHit(1)),
      element("label", {}, this.regex, "regexp"), element("label", {}, this.sensitive, "Aa"),
      button("Next error", "Next error (e)", () => this.nextError()),
      this.timeButton,
      button("Copy link", "Copy a link to the selected lines (y)", () => this.copyLink()),
      button("Copy lines", "Copy the selected lines", () => this.copyLines()),
      this.followButton);
    this.sizer = element("div", { className: "log-sizer" });
    this.list = element("div", { className: "log-rows" });
    this.port = element("div", { className: "log-port", tabIndex: 0 }, this.sizer, this.list);
    this.port.setAttribute("role", "log");
    this.port.setAttribute("aria-live", "off");
    this.port.setAttribute("aria-label", "Log");
    this.port.addEventListener("scroll", () => this.scrolled());
    this.port.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.port.addEventListener("keydown", (event) => this.scrollKey(event));
    this.list.addEventListener("click", (event) => this.clicked(event));
    this.prepend(bar, this.port);
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
    if (Array.isArray(lines)) lines.forEach((n, i) => this.setLines(i + 1, n));
    else this.setLines(step, lines);
    if (done) this.running = false;
    this.decide();
    this.layout();
  }

  setLines(number, lines) {
    const s = this.steps.find((one) => one.number === number);
    if (s && lines > s.lines) s.lines = lines;
  }

  grew(step, lines) {
    this.setLines(step, lines);
    this.layout();
  }

  // layout computes the rows: a header for each step, then its lines if it is open.
  layout() {
    const before = this.total ?? 0;
    let at = 0;
    for (const s of this.steps) {
      s.start = at;
      at += 1 + (this.open.has(s.number) ? s.lines : 0);
    }
    this.total = at;
    const height = `${Math.min(tallest, at * rowHeight)}px`;
    if (this.sizer.style.height !== height) this.sizer.style.height = height;
    if (this.following) this.top = this.lastTop();
    else if (this.running && at > before) this.unseen = (this.unseen ?? 0) + at - before;
    this.mirror();
    this.paint();
  }

  visible() { return Math.max(1, Math.floor(this.port.clientHeight / rowHeight)); }
  lastTop() { return Math.max(0, this.total - this.visible()); }
  scaled() { return this.total * rowHeight > tallest; }
  startOf(step) { return this.steps.find((s) => s.number === step)?.start ?? 0; }

  // mirror moves the scroll bar to the first visible row.
  mirror() {
    const range = this.port.scrollHeight - this.port.clientHeight;
    const wanted = this.lastTop() ? (this.top / this.lastTop()) * range : 0;
    const exact = this.scaled() ? wanted : this.top * rowHeight;
    if (Math.abs(this.port.scrollTop - exact) > 1) {
      this.mirrored = true;
      this.port.scrollTop = exact;
    }
  }

  scrolled() {
    if (this.mirrored) {
      this.mirrored = false;
      return;
    }
    const range = this.port.scrollHeight - this.port.clientHeight;
    const top = this.scaled() ? (this.port.scrollTop / Math.max(1, range)) * this.lastTop() : this.port.scrollTop / rowHeight;
    if (top < this.top - 0.5) this.follow(false);
    this.top = Math.min(top, this.lastTop());
    this.paint();
  }

  wheel(event) {
    if (!this.scaled() || event.ctrlKey) return;
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
    const top = Math.max(0, Math.min(to, this.lastTop()));
    if (top < this.top - 0.5) this.follow(false);
    this.top = top;
    this.mirror();
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
    if (!this.steps.length || this.selecting()) return;
    const first = Math.floor(this.top);
    const last = Math.min(this.total, first + this.visible() + 2);
    const wanted = new Map();
    for (const s of this.steps) {
      const end = s.start + 1 + (this.open.has(s.number) ? s.lines : 0);
      if (end <= first || s.start >= last) continue;
      const from = Math.max(0, first - s.start - 1);
      const to = Math.min(end, last) - s.start - 2;
      if (s.start >= first) wanted.set(`${s.number}`, { s, row: s.start });
      if (to < from) continue;
      this.source.need(s.number, from, to, s.lines);
      for (let n = from; n <= to; n++) wanted.set(`${s.number}:${n}`, { s, n, row: s.start + 1 + n });
    }
    for (const [key, row] of this.rows) {
      if (wanted.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    const offset = (this.top - first) * rowHeight;
    for (const [key, { s, n, row }] of wanted) {
      let e = this.rows.get(key);
      if (!e) {
        e = element("div", { className: n === undefined ? "log-step" : "log-line" });
        this.rows.set(key, e);
        this.list.append(e);
      }
      if (n === undefined) this.paintStep(e, s);
      else this.paintLine(e, s, n);
      e.style.top = `${(row - first) * rowHeight - offset}px`;
    }
    this.list.style.top = `${this.port.scrollTop}px`;
    this.paintFollow();
  }

  selecting() {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && this.list.contains(selection.anchorNode);
  }

  paintStep(e, s) {
    const open = this.open.has(s.number);
    const key = `${open} ${s.name} ${s.status} ${s.took} ${s.lines} ${s.exit ?? ""}`;
    if (e.dataset.key === key) return;
    e.dataset.key = key;
    e.className = `log-step is-${s.status}`;
    const toggle = element("button", { type: "button", className: "log-toggle", textContent: `${open ? "▾" : "▸"} ${s.name}` });
    toggle.setAttribute("aria-expanded", String(open));
    toggle.dataset.toggle = s.number;
    const facts = [s.status, s.took, `${s.lines.toLocaleString("en")} lines`, s.exit && s.exit !== "0" ? `exit code ${s.exit}` : ""];
    e.replaceChildren(toggle, element("span", { className: "dim", textContent: facts.filter(Boolean).join(" · ") }));
  }

  paintLine(e, s, n) {
    const line = this.source.line(s.number, n);
    const previous = this.time === 3 ? this.source.line(s.number, n - 1) : undefined;
    const selected = this.selected?.step === s.number && n >= this.selected.from && n <= this.selected.to;
    const current = this.hits[this.hit];
    const isHit = current && current[0] === s.number && current[1] === n;
    const key = `${line ? "x" : ""} ${line?.[2].length ?? 0} ${selected} ${isHit} ${this.time} ${this.pattern ?? ""} ${previous?.[0] ?? ""}`;
    if (e.dataset.key === key) return;
    e.dataset.key = key;
    const joined = (line?.[1] ?? 0) & flags.joined; // the row continues the line before
    const number = element("a", { className: "log-number", href: this.link(s.number, n, n), textContent: joined ? "↳" : n + 1 });
    number.dataset.step = s.number;
    number.dataset.line = n;
    number.tabIndex = -1;
    const flag = line?.[1] ?? 0;
    e.className = `log-line${selected ? " selected" : ""}${isHit ? " current" : ""}${flag & flags.error ? " error" : ""}${flag & flags.warning ? " warning" : ""}${flag & flags.note ? " note" : ""}`;
    const text = element("span", { className: "log-text" });
    if (line) text.append(...render(line[2], this.pattern));
    else text.textContent = "…";
    const parts = [number];
    if (this.time) parts.push(this.timeOf(line, previous));
    parts.push(text);
    if (flag & flags.cut) {
      const all = element("button", { type: "button", className: "button small", textContent: "Show all" });
      all.addEventListener("click", () => this.source.whole(s.number, n));
      parts.push(all);
    }
    e.replaceChildren(...parts);
  }

  timeOf(line, previous) {
    const cell = element("span", { className: "log-time" });
    if (!line?.[0]) return cell;
    const at = new Date(line[0]);
    cell.title = at.toLocaleString("en-GB", { timeZoneName: "short" });
    if (this.time === 1) cell.textContent = at.toISOString().slice(11, 23);
    else {
      const from = this.time === 2 ? Date.parse(this.dataset.begin) : previous?.[0] || line[0];
      const apart = line[0] - from;
      cell.textContent = `+${(apart / 1000).toFixed(3)}`;
      if (this.time === 3 && apart > longPause) cell.classList.add("pause");
    }
    return cell;
  }

  cycleTime() {
    this.time = (this.time + 1) % times.length;
    this.timeButton.textContent = `Times: ${times[this.time]}`;
    this.paint();
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
    this.move(this.startOf(step) + 1 + n - 3);
  }

  findSoon() {
    clearTimeout(this.finding);
    this.finding = setTimeout(() => this.find(), 200);
  }

  async find() {
    const q = this.input.value;
    const asked = (this.asked = {});
    this.hits = [];
    this.hit = -1;
    this.pattern = null;
    this.count.textContent = "";
    if (q === "") return this.paint();
    const query = { q };
    if (this.regex.checked) query.regex = "on";
    if (this.sensitive.checked) query.case = "on";
    try {
      const found = await this.source.ask("find", query);
      if (asked !== this.asked) return;
      this.hits = found.hits;
      this.found = found.total;
      try {
        const source = this.regex.checked ? q : q.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
        this.pattern = new RegExp(source, this.sensitive.checked ? "g" : "gi");
      } catch {
        // The server's regular expressions differ; its hits are shown without marks.
      }
      if (this.hits.length) this.nextHit(1);
      else this.count.textContent = "no hits";
    } catch (error) {
      this.count.textContent = error.message;
    }
    this.paint();
  }

  nextHit(step) {
    if (this.hits.length === 0) return;
    this.hit = (this.hit + step + this.hits.length) % this.hits.length;
    this.count.textContent = `${this.hit + 1} of ${this.found.toLocaleString("en")}`;
    this.showLine(...this.hits[this.hit]);
  }

  async nextError() {
    try {
      const found = await this.source.ask("find", { errors: "on" });
      const here = this.lastError;
      const at = found.hits.findIndex(([step, line]) => !here || step > here[0] || (step === here[0] && line > here[1]));
      const next = found.hits[at < 0 ? 0 : at];
      if (!next) return;
      this.lastError = next;
      this.selected = { step: next[0], from: next[1], to: next[1] };
      this.showLine(...next);
    } catch (error) {
      this.count.textContent = error.message;
    }
  }

  copyLink() {
    if (this.selected) copy(new URL(this.link(this.selected.step, this.selected.from, this.selected.to), location.href).href);
  }

  async copyLines() {
    if (this.selected) copy(await this.source.text(this.selected.step, this.selected.from, this.selected.to, plain));
  }

  key(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "f" && document.activeElement !== this.input) {
      event.preventDefault(); // a second press opens the browser's own
      this.input.focus();
      this.input.select();
      return;
    }
    if (!enabled() || event.ctrlKey || event.metaKey || event.altKey || typing(event) || document.querySelector("dialog[open]")) return;
    const moveStep = (by) => {
      const at = this.steps.findLastIndex((s) => s.start <= Math.ceil(this.top));
      const next = this.steps[Math.max(0, Math.min(this.steps.length - 1, at + by))];
      if (next) this.move(next.start);
    };
    const act = {
      f: () => this.follow(!this.following), n: () => this.nextHit(1), N: () => this.nextHit(-1), e: () => this.nextError(),
      t: () => this.cycleTime(), y: () => this.copyLink(), "[": () => moveStep(-1), "]": () => moveStep(1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

customElements.define("log-view", LogView);
