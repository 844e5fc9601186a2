// The rows of a log that are on the screen: headers of steps, and lines. Rows are kept as long as
// they are visible, so that a selection survives. Lines become text nodes, never HTML.
import { element, icon, timeZone } from "./html.js";
import { flags } from "./log-source.js";
import { render } from "./log-text.js";

export const times = ["off", "clock", "since start", "since previous"];
const longPause = 5000; // milliseconds between lines that are marked

const keyOf = ({ step, n }) => (n < 0 ? `${step}` : `${step}:${n}`);

export class LogRows {
  constructor(view, list) {
    this.view = view;
    this.list = list;
    this.rows = new Map(); // by step, or step and line
  }

  // ends returns the rows in which the selection begins and ends, which must remain.
  ends() {
    const { isCollapsed, anchorNode, focusNode } = document.getSelection();
    if (isCollapsed) return [];
    return [anchorNode, focusNode].map((node) => [...this.list.children].find((e) => e.contains(node))).filter(Boolean);
  }

  // place returns the step and line of an end of the selection, and the number of characters of the line before it.
  place(node, offset) {
    const row = [...this.list.children].find((e) => e.contains(node));
    if (!row) return undefined;
    const text = row.querySelector(".ln > span");
    if (!text) return { ...row.at, offset: undefined };
    const before = document.createRange();
    before.selectNodeContents(text);
    const order = before.comparePoint(node, offset);
    if (order === 0) before.setEnd(node, offset);
    return { ...row.at, offset: order < 0 ? 0 : before.toString().length };
  }

  // paint shows the rows from first to last, of which the row top, a fraction, is at the top of the
  // port. It returns the row that is at the top then.
  paint(first, last, top) {
    const { view } = this;
    const wanted = new Map(); // in the order of the rows
    for (const s of view.steps) {
      const end = s.start + 1 + (view.open.has(s.number) ? s.lines : 0);
      if (end <= first || s.start >= last) continue;
      const from = Math.max(0, first - s.start - 1);
      const to = Math.min(end, last) - s.start - 2;
      if (s.start > first) wanted.set(`${s.number}`, { s, row: s.start });
      if (to < from) continue;
      view.source.need(s.number, from, to, s.lines);
      for (let n = from; n <= to; n++) wanted.set(`${s.number}:${n}`, { s, n, row: s.start + 1 + n });
    }
    const ends = this.ends();
    for (const [key, row] of this.rows) {
      if (wanted.has(key) || ends.includes(row)) continue;
      row.remove();
      this.rows.delete(key);
    }
    let next = this.list.firstElementChild; // the rows are in the order of the log, as a selection is
    for (const [key, { s, n, row }] of wanted) {
      let e = this.rows.get(key);
      if (!e) {
        e = element("div", { className: n === undefined ? "logh" : "ln" });
        e.at = { step: s.number, n: n ?? -1 };
        this.rows.set(key, e);
        while (next && this.view.rowOf(next.at.step, next.at.n) < row) next = next.nextElementSibling;
        this.list.insertBefore(e, next);
      }
      if (n === undefined) this.step(e, s);
      else this.line(e, s, n);
    }
    for (const e of ends) if (!wanted.has(keyOf(e.at))) e.style.top = "-100vh";
    if (view.wrap) return this.measured(wanted, first, top);
    for (const [key, { row }] of wanted) this.rows.get(key).style.top = `${view.offset() + (row - top) * view.rowHeight}px`;
    return top;
  }

  // measured places rows of different heights. The first row is missing if the header of its step covers it.
  measured(wanted, first, top) {
    const { view } = this;
    const elements = [...wanted.keys()].map((key) => this.rows.get(key));
    const heights = elements.map((e) => e.offsetHeight);
    const missing = wanted.size ? [...wanted.values()][0].row - first : 0;
    const begin = view.offset() + missing * view.rowHeight;
    let y = begin - (top - first) * (missing ? view.rowHeight : heights[0] ?? 0);
    if (view.atEnd) {
      y = Math.min(begin, view.port.clientHeight - heights.reduce((sum, h) => sum + h, 0));
      let above = y;
      const at = heights.findIndex((h) => (above += h) > view.offset());
      if (at >= 0) top = first + missing + at + (heights[at] - above + view.offset()) / heights[at];
    }
    elements.forEach((e, i) => {
      e.style.top = `${y}px`;
      y += heights[i];
    });
    return Math.max(0, top);
  }

  // step shows a step's header. The one at the top, which says which of its lines are on the screen, has a button; the
  // others are too low for one, and come to the top by keys and by the list of the steps.
  step(e, s, lines = "") {
    const open = this.view.open.has(s.number);
    const key = `${open} ${s.number} ${s.name} ${s.status} ${s.took} ${s.lines} ${s.exit ?? ""} ${lines}`;
    if (e.dataset.key === key) return;
    e.dataset.key = key;
    e.dataset.status = s.status;
    const parts = [icon(open ? "down" : "right"), element("span", { textContent: s.name })];
    const toggle = e === this.view.head ? element("button", { type: "button" }, ...parts) : element("span", {}, ...parts);
    if (e === this.view.head) toggle.setAttribute("aria-expanded", String(open));
    toggle.dataset.toggle = s.number;
    const focused = e.contains(document.activeElement);
    const exit = s.exit && s.exit !== "0" ? `exit code ${s.exit}` : "";
    const facts = [exit || s.status === "succeeded" ? "" : s.status, lines || `${s.lines.toLocaleString("en")} ${s.lines === 1 ? "line" : "lines"}`, exit];
    const dim = (text) => element("span", { className: "dim", textContent: text });
    e.replaceChildren(toggle, dim(facts.filter(Boolean).join(", ")), element("span", { className: "push" }), dim(s.took));
    if (focused) toggle.focus();
  }

  line(e, s, n) {
    const { view } = this;
    const line = view.source.line(s.number, n);
    const previous = view.time === 3 ? view.source.line(s.number, n - 1) : undefined;
    const selected = view.selected?.step === s.number && n >= view.selected.from && n <= view.selected.to;
    const current = view.search.current(s.number, n);
    const pattern = view.search.pattern;
    const key = `${line ? "x" : ""} ${line?.[2].length ?? 0} ${selected} ${current} ${view.time} ${pattern ?? ""} ${previous?.[0] ?? ""}`;
    if (e.dataset.key === key) return;
    e.dataset.key = key;
    const flag = line?.[1] ?? 0;
    const joined = flag & flags.joined;
    const number = element("a", { href: view.link(s.number, n, n), textContent: joined ? "↳" : n + 1 });
    if (joined) number.title = `${n + 1}: continues the line before`;
    number.dataset.step = s.number;
    number.dataset.line = n;
    number.tabIndex = -1;
    const names = view.time ? ["ln", "tm"] : ["ln"];
    if (selected) names.push("sel");
    if (current) names.push("current");
    if (flag & flags.error) names.push("x");
    for (const name of ["warning", "remark"]) if (flag & flags[name]) names.push(name);
    e.className = names.join(" ");
    const text = element("span");
    if (line) text.append(...render(line[2], pattern));
    else text.textContent = "…";
    const parts = [number];
    if (view.time) parts.push(this.timeOf(line, previous));
    parts.push(text);
    if (flag & flags.cut) {
      const all = element("button", { type: "button", className: "btn small", textContent: "Show all" });
      all.addEventListener("click", () => view.source.whole(s.number, n));
      parts.push(all);
    }
    e.replaceChildren(...parts);
  }

  timeOf(line, previous) {
    const cell = element("i");
    if (!line?.[0]) return cell;
    const { view } = this;
    const at = new Date(line[0]);
    cell.title = `${at.toLocaleString("en-GB", { timeZone, timeZoneName: "short" })} (${at.toISOString()})`;
    if (view.time === 1) {
      cell.textContent = at.toLocaleTimeString("en-GB", { timeZone });
      return cell;
    }
    const from = view.time === 2 ? Date.parse(view.dataset.begin) : previous?.[0] || line[0];
    const apart = line[0] - from;
    cell.textContent = `+${(apart / 1000).toFixed(apart < 1e5 ? 3 : 1)}`;
    if (view.time === 3 && apart > longPause) cell.classList.add("pause");
    return cell;
  }
}
