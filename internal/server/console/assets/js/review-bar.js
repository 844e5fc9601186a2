// The bar says what its form changes, while that is something.
const bar = document.querySelector(".save");
const value = (e) => (e.type === "checkbox" ? e.checked : e.value);

if (bar) {
  const [count, what] = bar.children;
  const form = [...bar.lastElementChild.form];
  const old = form.map(value);
  const pending = what.textContent.split(", ");
  const show = () => {
    const names = new Set(pending);
    form.forEach((e, i) => value(e) !== old[i] && names.add(e.labels[0].innerText.split("\n")[0]));
    names.delete("");
    bar.hidden = !names.size;
    count.textContent = `${names.size} change${names.size > 1 ? "s" : ""}`;
    what.textContent = [...names].join(", ");
  };
  addEventListener("input", show);
  show();
}
