// Stars of stacks change at once. The buttons belong to one form, which also works without scripts.
function show(button, on) {
  button.setAttribute("aria-pressed", String(on));
  button.name = on ? "unstar" : "star";
}

document.addEventListener("submit", async (event) => {
  const button = event.submitter;
  if (event.target.id !== "stars" || !button?.classList.contains("starb")) return;
  event.preventDefault();
  const on = button.name === "star";
  const body = new URLSearchParams({ [button.name]: button.value });
  show(button, on);
  try {
    const answer = await fetch(event.target.action, { method: "POST", body, redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.ok) return;
  } catch {
    // The page of the form says what is wrong.
  }
  show(button, !on);
  const field = document.createElement("input");
  field.type = "hidden";
  [field.name, field.value] = [button.name, button.value];
  event.target.append(field);
  event.target.submit();
});
