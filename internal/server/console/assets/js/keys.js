// Keys without a modifier: navigation, lists and the help. They are inactive in inputs, and users
// can turn them off (WCAG 2.1.4).
import { element } from "./html.js";

export function typing(event) {
  const element = event.composedPath()[0];
  return element.closest?.("input, textarea, select, [contenteditable]") != null;
}

export function enabled() {
  return document.documentElement.dataset.keys !== "off";
}

const help = [
  ["Ctrl+K", "find a page or action"],
  ["/", "filter the list"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["Space", "show the row's panel"],
  ["< >", "previous and next run of the stack"],
  ["?", "this help"],
  ["f", "log: follow the end"],
  ["n N", "log: next and previous hit"],
  ["[ ]", "log: previous and next step"],
  ["e", "log: next error"],
  ["t", "log: show times"],
  ["w", "log: wrap long lines"],
  ["y", "log: copy a link to the lines"],
  ["z", "log: full screen"],
];

let prefix = false;

// places are the keys and names of the pages that the rail links to, because users see different sections.
function places() {
  return [...document.querySelectorAll(".rail a[data-key]")].map((a) => [`g ${a.dataset.key}`, `go to ${a.textContent.trim()}`]);
}

function rows() {
  return [...document.querySelectorAll("main tbody tr, main .row")].filter((row) => row.querySelector("a[href]"));
}

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  all[Math.min(all.length - 1, Math.max(0, at + step))].querySelector("a[href]").focus();
}

function showHelp() {
  let dialog = document.getElementById("key-help");
  if (!dialog) {
    const [first, ...rest] = help;
    const pairs = [first, ...places(), ...rest].flatMap(([key, text]) => [element("dt", {}, element("kbd", { textContent: key })), element("dd", { textContent: text })]);
    const close = element("button", { className: "btn", textContent: "Close", type: "button" });
    close.addEventListener("click", () => dialog.close());
    dialog = element("dialog", { id: "key-help", className: "dlg", ariaLabel: "Keys" },
      element("h2", { textContent: "Keys" }), element("dl", { className: "kv" }, ...pairs), element("div", { className: "acts" }, close));
    document.body.append(dialog);
  }
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (!enabled() || event.ctrlKey || event.metaKey || event.altKey || typing(event) || document.querySelector("dialog[open]")) return;
  if (prefix) {
    prefix = false;
    const link = document.querySelector(`.rail a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  switch (event.key) {
    case "g":
      prefix = true;
      setTimeout(() => (prefix = false), 1500);
      return;
    case "?":
      showHelp();
      break;
    case "/": {
      const filter = document.querySelector("main input[type=search], main input[name=q]");
      if (!filter) return;
      filter.focus();
      break;
    }
    case "j":
      move(1);
      break;
    case "k":
      move(-1);
      break;
    case "x":
      document.activeElement.closest(".row")?.querySelector(".tick")?.click();
      break;
    case " ": {
      const panel = document.activeElement.matches(".row .go") && document.activeElement.closest(".row").querySelector("[data-panel]");
      if (!panel) return;
      panel.click();
      break;
    }
    case "<":
    case ">": {
      const run = document.querySelector(`.obj a[rel=${event.key === "<" ? "prev" : "next"}]`);
      if (!run) return;
      run.click();
      break;
    }
    default:
      return;
  }
  event.preventDefault();
});

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-keys-help]")) return;
  event.preventDefault();
  showHelp();
});

const openMenus = "details[open]:has(> .menu, > .dlg)";

// One menu is open at a time, and Escape closes it.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll(openMenus)) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll(openMenus)) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// The current tab is in view where tabs scroll.
function showTabs() {
  for (const tab of document.querySelectorAll(".tabs [aria-current], .sub [aria-current]")) {
    const bar = tab.parentElement;
    bar.scrollLeft += tab.getBoundingClientRect().left - bar.getBoundingClientRect().left - (bar.clientWidth - tab.offsetWidth) / 2;
  }
}

showTabs();
window.addEventListener("resize", showTabs);
