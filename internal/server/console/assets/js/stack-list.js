// Groups of stacks select all of them, and fold without a new page.
import { morph, parse } from "./html.js";

document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-all]")) return;
  let row = target.closest(".row");
  while ((row = row.nextElementSibling)?.matches(":not(.grp)")) row.querySelector(".tick").checked = target.checked;
});

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-fold]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const { href } = link;
  try {
    const answer = await fetch(href);
    const main = parse(await answer.text()).getElementById("main");
    if (!answer.ok || answer.redirected) throw answer;
    history.replaceState(null, "", href);
    morph(document.getElementById("main"), main);
    const live = document.querySelector("live-page");
    live.close();
    live.open();
  } catch {
    location.assign(href);
  }
});
