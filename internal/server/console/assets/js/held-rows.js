// held-rows keeps the rows of a live list in their places: rows change where they are, and new ones wait until the button
// with their number is pressed.
import { element, morph } from "./html.js";

const rowsOf = (list) => [...list.querySelectorAll(".row[id]")];

// update shows the server's new state of a list.
export function update(list, wanted) {
  const rows = rowsOf(list);
  const place = document.querySelector("[data-new-rows]");
  if (rows.length === 0 || !place) return morph(list, wanted);
  const shown = new Set(rows.map((row) => row.id));
  const waiting = rowsOf(wanted).filter((row) => !shown.has(row.id) && !row.matches(".grp")).length;
  const next = new Map(rowsOf(wanted).map((row) => [row.id, row.cloneNode(true)]));
  for (const row of rows) {
    if (next.has(row.id)) morph(row, next.get(row.id));
    else leave(row);
  }
  place.replaceChildren();
  if (waiting === 0) return;
  const button = element("button", { type: "button", className: "btn small", textContent: `${waiting} new` });
  button.addEventListener("click", () => {
    morph(list, wanted);
    place.replaceChildren();
    rowsOf(document.getElementById(wanted.id)).find((row) => !shown.has(row.id))?.querySelector("a[href]")?.focus();
    document.dispatchEvent(new CustomEvent("page-changed"));
  });
  place.append(button);
}

// leave marks a row that the list no longer contains: it stays, but says no more that it runs.
function leave(row) {
  row.classList.add("dim");
  for (const clock of row.querySelectorAll("local-time[data-form=since]")) clock.replaceWith(element("span", { textContent: clock.textContent }));
}
