// definition-editor checks the definition of an environment while it is being written, and completes what is typed. Without
// it, the form has buttons for that.
import { element, morph, parseElement } from "./html.js";

const write = (text) => document.execCommand("insertText", false, text); // it can be undone

class DefinitionEditor extends HTMLElement {
  connectedCallback() {
    this.area = this.querySelector("textarea");
    this.form = this.area.form;
    this.numbers = element("pre", { ariaHidden: "true" });
    this.list = element("div", { id: "completions", className: "menu", role: "listbox", ariaLabel: "Suggestions", hidden: true });
    this.prepend(this.numbers);
    this.append(this.list);
    this.area.ariaAutoComplete = "list";
    this.area.setAttribute("aria-controls", this.list.id);
    this.area.addEventListener("input", () => {
      this.number();
      this.later("checking", 600, () => this.check());
      this.later("asking", 150, () => this.complete());
    });
    this.area.addEventListener("scroll", () => this.scroll());
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("beforeinput", (event) => {
      if (event.inputType !== "insertLineBreak") return;
      event.preventDefault();
      this.enter();
    });
    this.area.addEventListener("blur", () => this.hide());
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the text keeps the focus
      const option = event.target.closest("[role=option]");
      if (option) this.choose(option);
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.submitter?.formAction.endsWith("check")) this.check();
      else this.save();
    });
    this.form.addEventListener("click", (event) => {
      const link = event.target.closest("[data-line]");
      if (!link) return;
      event.preventDefault();
      this.jump(link.dataset.line - 1, link.dataset.column - 1);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.save();
    });
    window.addEventListener("beforeunload", (event) => {
      if (!this.saved && this.area.value !== this.area.defaultValue) event.preventDefault();
    });
    this.number();
    const { line, column, top } = history.state ?? {};
    if (column === undefined) return;
    this.jump(line, column);
    this.area.scrollTop = top;
  }

  later(name, after, run) {
    clearTimeout(this[name]);
    this[name] = setTimeout(run, after);
  }

  // number shows the numbers of the lines, and marks those with problems.
  number() {
    const wrong = new Set([...this.form.querySelectorAll("[data-line]")].map((e) => Number(e.dataset.line)));
    const parts = [];
    let text = "";
    for (let n = 1; n <= this.area.value.split("\n").length; n++) {
      if (wrong.has(n)) {
        parts.push(text, element("mark", { textContent: n }));
        text = "\n";
      } else text += `${n}\n`;
    }
    this.numbers.replaceChildren(...parts, text);
    this.scroll();
  }

  scroll() {
    this.numbers.scrollTop = this.area.scrollTop;
    this.hide();
  }

  jump(line, column) {
    const lines = this.area.value.split("\n");
    const at = lines.slice(0, line).join("\n").length + (line > 0) + Math.min(Math.max(column, 0), lines[line]?.length ?? 0);
    this.area.focus();
    this.area.setSelectionRange(at, at);
    this.area.scrollTop = (line - 4) * parseFloat(getComputedStyle(this.area).lineHeight);
  }

  // send sends the form, and shows what the server says. The text stays, also if the user is signed out.
  async send(to) {
    let found;
    try {
      const answer = await fetch(to, { method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(new FormData(this.form)) });
      found = await answer.json();
    } catch {
      found = { message: "The server cannot be reached." };
    }
    for (const html of found.parts ?? []) {
      const wanted = parseElement(html);
      morph(document.getElementById(wanted.id), wanted);
    }
    if (found.message) document.getElementById("problems").replaceChildren(element("p", { className: "foot bad", textContent: found.message }));
    this.number();
    return found;
  }

  // check lets the server evaluate the text, once at a time.
  async check() {
    this.again = this.busy;
    if (this.busy) return;
    this.busy = true;
    await this.send(this.dataset.check);
    this.busy = false;
    if (this.again) this.check();
  }

  async save() {
    clearTimeout(this.checking);
    const { location: to } = await this.send(this.form.action);
    if (!to) return;
    this.saved = true;
    // The stored text can have other lengths: ciphertexts.
    const lines = this.area.value.slice(0, this.area.selectionStart).split("\n");
    history.replaceState({ line: lines.length - 1, column: lines.at(-1).length, top: this.area.scrollTop }, "", to);
    location.reload();
  }

  // complete asks what can be written at the place of the cursor. A longer word selects from the same options.
  async complete(wanted) {
    const { value, selectionStart: at } = this.area;
    const before = value.slice(0, at);
    if (!wanted && !/[\w$:{.@/"[-]$/.test(before)) return this.hide();
    const { known } = this;
    if (known && !known.more && before.startsWith(known.before) && /^[\w:/-]*$/.test(before.slice(known.before.length))) return this.show(before);
    let found;
    try {
      const answer = await fetch(this.dataset.complete, {
        method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams({ before, after: value.slice(at) }),
      });
      found = answer.ok && (await answer.json());
    } catch {
      // There are no suggestions without a server.
    }
    if (!found || value !== this.area.value || at !== this.area.selectionStart) return;
    const word = at - found.word.length;
    this.known = { ...found, from: at - found.back, word, before: before.slice(0, word) };
    this.show(before);
  }

  show(before) {
    const { options, word } = this.known;
    const typed = before.slice(word).toLowerCase();
    const fits = options.filter((o) => o.text.toLowerCase().includes(typed)).slice(0, 50);
    if (fits.length === 0 || (fits.length === 1 && fits[0].text.toLowerCase() === typed)) return this.hide();
    this.list.replaceChildren(...fits.map((o, i) => {
      const option = element("div", { id: `completion-${i}`, role: "option" }, element("span", { textContent: o.text }), " ", element("span", { className: "dim cut", textContent: o.note ?? "" }));
      option.insert = o.insert || o.text;
      return option;
    }));
    const line = before.slice(0, word).split("\n");
    const height = parseFloat(getComputedStyle(this.area).lineHeight);
    const top = (line.length + 0.5) * height - this.area.scrollTop;
    this.list.hidden = false;
    this.list.style.top = `${top + this.list.offsetHeight > this.offsetHeight ? Math.max(0, top - height - this.list.offsetHeight) : top}px`;
    this.list.style.left = `min(calc(${line.at(-1).length}ch + ${this.area.offsetLeft - this.area.scrollLeft}px), 100% - ${this.list.offsetWidth}px)`;
    this.select(0);
  }

  hide() {
    this.list.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
  }

  select(at) {
    const all = [...this.list.children];
    this.at = (at + all.length) % all.length;
    all.forEach((option, i) => {
      option.ariaSelected = i === this.at;
      option.classList.toggle("on", i === this.at);
    });
    all[this.at].scrollIntoView({ block: "nearest" });
    this.area.setAttribute("aria-activedescendant", all[this.at].id);
  }

  choose({ insert }) {
    this.hide();
    this.area.setSelectionRange(this.known.from, this.area.selectionEnd);
    write(insert);
  }

  key(event) {
    if (event.isComposing || event.altKey) return;
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { hidden } = this.list;
    if (!hidden && by) this.select(this.at + by);
    else if (!hidden && event.key === "Tab") this.choose(this.list.children[this.at]);
    else if (!hidden && event.key === "Escape") this.hide();
    else if (event.ctrlKey && event.key === " ") this.complete(true);
    else return;
    event.preventDefault();
  }

  // enter chooses the suggestion, or begins a line with the indentation of the last one, or within its key.
  enter() {
    if (!this.list.hidden) return this.choose(this.list.children[this.at]);
    const line = this.area.value.slice(0, this.area.selectionStart).split("\n").pop();
    write(`\n${line.match(/^ */)[0]}${/:\s*$/.test(line) ? "  " : ""}`);
  }
}

customElements.define("definition-editor", DefinitionEditor);
