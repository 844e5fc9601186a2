// Hits and errors in a log. The server searches all steps; this module keeps the first lines that it
// found, walks through them and marks them next to the scroll bar.
import { element } from "./html.js";

const soon = 200; // milliseconds between typing and searching
// A growing log is searched again after a pause, which is longer if a search takes long.
const pause = 2000;
const share = 20;
const maxMarks = 200;

export class LogSearch {
  constructor(view) {
    this.view = view;
    this.hits = []; // [step, line], in order
    this.errors = [];
    this.hit = -1;
    this.found = 0;
    this.pattern = null;
    this.input = element("input", { type: "search", className: "inp", placeholder: "Find in all steps", ariaLabel: "Find in all steps" });
    this.input.addEventListener("input", () => {
      this.options.hidden = this.input.value === "";
      this.later();
    });
    this.options = element("span", { className: "acts2", hidden: true });
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.next(event.shiftKey ? -1 : 1);
    });
    this.regex = element("input", { type: "checkbox" });
    this.sensitive = element("input", { type: "checkbox" });
    for (const box of [this.regex, this.sensitive]) box.addEventListener("change", () => this.later());
    this.count = element("span", { className: "dim" });
    this.count.setAttribute("role", "status");
    this.errorCount = element("span", { className: "dim hidephone" });
    this.marks = element("div", { className: "marks" });
    this.marks.setAttribute("aria-hidden", "true");
  }

  current(step, n) {
    const hit = this.hits[this.hit];
    return hit !== undefined && hit[0] === step && hit[1] === n;
  }

  later() {
    clearTimeout(this.finding);
    this.finding = setTimeout(() => this.find(), soon);
  }

  query() {
    const query = { q: this.input.value };
    if (this.regex.checked) query.regex = "on";
    if (this.sensitive.checked) query.case = "on";
    return query;
  }

  async ask(query) {
    const began = performance.now();
    const found = await this.view.source.ask("find", query);
    this.quiet = performance.now() + Math.max(pause, share * (performance.now() - began));
    return found;
  }

  async find() {
    const asked = (this.asked = {});
    this.hits = [];
    this.hit = -1;
    this.pattern = null;
    this.count.textContent = "";
    const query = this.query();
    if (query.q !== "") {
      try {
        const found = await this.ask(query);
        if (asked !== this.asked) return;
        this.hits = found.hits;
        this.found = found.total;
        this.partial = found.partial;
        this.pattern = this.marking(query.q);
        if (this.hits.length) this.next(1);
        else this.tell();
      } catch (error) {
        if (asked === this.asked) this.count.textContent = error.message;
      }
    }
    this.draw();
    this.view.paint();
  }

  marking(q) {
    try {
      const source = this.regex.checked ? q : q.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      return new RegExp(source, this.sensitive.checked ? "g" : "gi");
    } catch {
      return null; // The server's regular expressions differ; its hits are shown without marks.
    }
  }

  // grew searches again after the log has grown, without moving.
  grew() {
    if (!this.asked || this.input.value === "" || this.again) return;
    this.again = setTimeout(async () => {
      const asked = this.asked;
      try {
        const found = await this.ask(this.query());
        if (asked === this.asked) {
          const here = this.hits[this.hit];
          this.hits = found.hits;
          this.found = found.total;
          this.partial = found.partial;
          this.hit = here ? this.hits.findIndex(([step, line]) => step === here[0] && line === here[1]) : -1;
          this.tell();
          this.draw();
          this.view.paint();
        }
      } catch {
        // The next growth tries again.
      }
      this.again = undefined;
    }, Math.max(0, (this.quiet ?? 0) - performance.now()));
  }

  tell() {
    const more = this.partial ? "+" : "";
    const total = this.found.toLocaleString("en") + more;
    if (this.found === 0) this.count.textContent = this.partial ? "no hits in the searched part" : "no hits";
    else this.count.textContent = this.hit < 0 ? total : `${(this.hit + 1).toLocaleString("en")} of ${total}`;
  }

  next(by) {
    if (this.hits.length === 0) return;
    this.hit = this.hit < 0 && by < 0 ? this.hits.length - 1 : (this.hit + by + this.hits.length) % this.hits.length;
    this.tell();
    this.view.showLine(...this.hits[this.hit]);
  }

  // nextError shows the next line that states an error. A failed deployment opens with the line of its cause, which is
  // opening, with the first error, or with the end of the log.
  async nextError(opening) {
    try {
      const found = await this.ask({ errors: "on" });
      this.errors = found.hits;
      this.errorCount.textContent = found.total ? `${found.total.toLocaleString("en")}${found.partial ? "+" : ""} ${found.total === 1 ? "error" : "errors"}` : "";
      this.errorButton.hidden = found.total === 0;
      this.draw();
      const here = this.lastError;
      const at = this.errors.findIndex(([step, line]) => !here || step > here[0] || (step === here[0] && line > here[1]));
      const next = opening?.length ? opening : this.errors[at < 0 ? 0 : at];
      if (!next) {
        if (opening) this.view.move(Infinity);
        else this.count.textContent = "no line states an error";
        return;
      }
      this.lastError = next;
      this.view.selected = { step: next[0], from: next[1], to: next[1] };
      this.view.showLine(...next);
    } catch (error) {
      this.count.textContent = error.message;
    }
  }

  // draw marks the positions of errors and hits next to the scroll bar.
  draw() {
    const { view } = this;
    const list = [];
    for (const [name, found] of [["error", this.errors], ["hit", this.hits]]) {
      const at = new Set(found.map((line) => Math.round((view.rowOf(...line) / Math.max(1, view.total)) * maxMarks)));
      for (const n of at) {
        const mark = element("span", { className: name });
        mark.style.top = `${(n * 100) / maxMarks}%`;
        list.push(mark);
      }
    }
    this.marks.replaceChildren(...list);
  }
}
