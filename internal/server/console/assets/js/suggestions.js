// A field with a datalist of users shows it as a list of names and pictures. Without script, it is the browser's list.
import { element, marked } from "./html.js";

for (const input of document.querySelectorAll(".combo:has([data-av]) [list]")) {
  const all = [...input.list.options];
  const list = element("div", { className: "menu", id: "suggestions", role: "listbox", ariaLabel: "Suggestions", hidden: true });
  let at = 0;
  const select = (to) => {
    at = (to + list.children.length) % list.children.length;
    [...list.children].forEach((option, i) => {
      option.ariaSelected = i === at;
      option.classList.toggle("on", i === at);
    });
    input.setAttribute("aria-activedescendant", `suggestion-${at}`);
  };
  const show = (open) => {
    list.hidden = !open;
    input.ariaExpanded = open;
    if (!open) input.removeAttribute("aria-activedescendant");
  };
  const choose = (option) => {
    input.value = option.dataset.value;
    show(false);
  };
  input.removeAttribute("list");
  Object.assign(input, { role: "combobox", ariaExpanded: false, ariaAutoComplete: "list" });
  input.setAttribute("aria-controls", list.id);
  input.parentElement.after(list);
  input.addEventListener("input", () => {
    const word = input.value.trim().toLowerCase();
    const found = word ? all.filter((o) => o.value.includes(word) || o.text.toLowerCase().includes(word)).slice(0, 8) : [];
    list.replaceChildren(...found.map((o, i) => {
      const option = element("div", { id: `suggestion-${i}`, role: "option" }, element("span", { className: "av", ariaHidden: "true", textContent: o.dataset.av }), " ",
        element("span", { className: "cut" }, ...marked(o.text, [word])), " ", element("span", { className: "dim push" }, ...marked(o.value, [word])));
      option.dataset.value = o.value;
      return option;
    }));
    show(found.length > 0);
    if (found.length) select(0);
  });
  input.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (list.hidden || event.isComposing || !(by || ["Enter", "Escape"].includes(event.key))) return;
    event.preventDefault();
    if (by) select(at + by);
    else if (event.key === "Enter") choose(list.children[at]);
    else show(false);
  });
  input.addEventListener("blur", () => show(false));
  list.addEventListener("mousedown", (event) => {
    event.preventDefault(); // the field keeps the focus
    const option = event.target.closest("[role=option]");
    if (option) choose(option);
  });
}
