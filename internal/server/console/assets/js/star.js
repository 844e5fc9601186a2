// Stars of stacks change at once, and Undo follows. Their forms also work without scripts.
import { element, parse } from "./html.js";

document.addEventListener("submit", async (event) => {
  const { target, submitter } = event;
  if (!target.getAttribute("action")?.endsWith("/star")) return;
  event.preventDefault();
  const body = new FormData(target, submitter);
  const [[name, value]] = body;
  try {
    const page = fetch(target.action, { method: "POST", body: new URLSearchParams(body) });
    for (const star of document.querySelectorAll(".starb")) {
      if (star.value !== value) continue;
      star.ariaPressed = name === "star";
      star.name = name === "star" ? "unstar" : "star";
    }
    const answer = await page;
    if (answer.ok) {
      const now = parse(await answer.text());
      for (const id of ["said", "starred"]) document.getElementById(id).replaceChildren(...now.getElementById(id).children);
      if (!submitter.isConnected) document.querySelector("#said button")?.focus();
      return;
    }
  } catch {
    // The page of the form says what is wrong.
  }
  target.append(element("input", { type: "hidden", name, value }));
  target.submit();
});
