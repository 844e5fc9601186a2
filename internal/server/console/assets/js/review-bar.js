// The bar says what its form changes, if anything.
const bar = document.querySelector("div.save");
const state = (e) => `${e.value}${e.checked}`;

if (bar) {
  const [count, what] = bar.children;
  const form = [...bar.lastElementChild.form];
  const old = form.map(state);
  const pending = what.textContent.split(", ");
  (document.oninput = () => {
    const names = new Set(pending);
    form.forEach((e, i) => state(e) !== old[i] && names.add(e.labels[0]?.innerText.split("\n")[0]));
    names.delete("");
    bar.hidden = !names.size;
    count.textContent = `${names.size} change${names.size > 1 ? "s" : ""}`;
    what.textContent = [...names].join(", ");
  })();
}
