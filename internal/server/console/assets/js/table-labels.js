// On phones, the cells of a table follow each other, each with the title of its column.
function label(table) {
  const titles = [...table.querySelectorAll("thead th")].map((th) => (th.querySelector(".hide") ? "" : th.textContent.trim()));
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, i) => titles[i] && (cell.dataset.label = titles[i]));
  }
}

function labelAll() {
  document.querySelectorAll(".table.narrow").forEach(label);
}

labelAll();
document.addEventListener("page-changed", labelAll);
