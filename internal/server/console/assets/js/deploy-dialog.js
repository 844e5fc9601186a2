// deploy-dialog opens the form that starts a deployment over the page that links to it. Without it, the form is a page.
import { element, morph, parse } from "./html.js";

let dialog;

const formOf = (html) => parse(html).getElementById("deploy");

// typed enables the button that destroys, and removes what is wrong, once the name of the stack is typed.
function typed(root) {
  const button = root.querySelector("[data-typed]");
  if (!button) return;
  const name = root.querySelector("[name=confirm]");
  button.disabled = name.value !== button.dataset.typed;
  if (button.disabled) return;
  name.removeAttribute("aria-invalid");
  root.querySelector("#deploy-confirm-problem")?.remove();
}

// show opens the dialog with a form, or updates the open form.
function show(form) {
  form.className = "";
  form.querySelector("h2").id = "deploy-dialog-title";
  form.setAttribute("aria-labelledby", "deploy-dialog-title");
  const old = dialog?.querySelector("#deploy");
  if (old) morph(old, form);
  else {
    dialog = element("dialog", { className: "dlg" }, form);
    dialog.setAttribute("aria-labelledby", "deploy-dialog-title");
    dialog.addEventListener("close", () => {
      dialog.remove();
      dialog = null;
    });
    document.body.append(dialog);
    dialog.showModal();
  }
  typed(dialog);
}

// openDeploy opens the form at an address in the dialog.
export async function openDeploy(href) {
  try {
    const answer = await fetch(href, { headers: { Accept: "text/html" } });
    const form = answer.ok && !answer.redirected && formOf(await answer.text());
    if (form) return show(form);
  } catch {
    // The page says what is wrong.
  }
  location.assign(href);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-dialog], dialog [data-close]");
  if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (link.matches("[data-close]")) return dialog.close();
  openDeploy(link.href);
});

// What the form says depends on the operation and the pool, so it comes from the server again.
async function reload(form, submitter) {
  const query = new URLSearchParams(new FormData(form, submitter));
  if (!submitter) query.set("operation", form.querySelector(".hide[name=operation]").value);
  try {
    const fresh = formOf(await (await fetch(`${form.action}?${query}`, { headers: { Accept: "text/html" } })).text());
    if (fresh && dialog?.contains(form)) show(fresh);
  } catch {
    // The form remains as it is.
  }
}

async function send(form, submitter) {
  const body = new URLSearchParams(new FormData(form, submitter));
  form.inert = true;
  try {
    const answer = await fetch(form.action, { method: "POST", body });
    if (answer.redirected) return location.assign(answer.url);
    const refused = formOf(await answer.text());
    if (answer.status === 401) {
      // The page that asks for the sign-in keeps what was entered.
      form.append(element("input", { type: "hidden", name: submitter.name, value: submitter.value }));
      return form.submit();
    }
    if (!refused) return location.assign(form.action);
    show(refused);
    dialog.querySelector("[aria-invalid], [role=alert]")?.focus();
  } catch {
    const [at, text] = dialog ? [".outlook span", ""] : [".bulk strong", "selected. "];
    document.querySelector(at).textContent = `${text}The server cannot be reached. Try again.`;
  } finally {
    form.inert = false;
  }
}

document.addEventListener("submit", (event) => {
  if (!dialog?.contains(event.target) && event.target.id !== "bulk") return;
  event.preventDefault();
  if (event.submitter?.formMethod === "get") reload(event.target, event.submitter);
  else send(event.target, event.submitter);
});
document.addEventListener("change", (event) => {
  if (dialog?.contains(event.target) && event.target.matches("select")) reload(event.target.form);
});
document.addEventListener("input", (event) => {
  const form = event.target.closest("#deploy");
  if (form) typed(form);
});

const page = document.getElementById("deploy");
if (page) typed(page);
