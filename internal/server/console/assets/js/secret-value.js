// secret-value reveals a secret of an environment in its place, and copies it. Without it, its form leads to a page.
import { announce, copy } from "./copy-text.js";
import { button } from "./html.js";

class SecretValue extends HTMLElement {
  connectedCallback() {
    const form = this.querySelector("form");
    const text = this.querySelector("span");
    const show = form.querySelector("button");
    const masked = text.textContent;
    const read = async () => {
      try {
        const answer = await fetch(form.action, { method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(new FormData(form)) });
        const found = await answer.json();
        if (answer.ok) return found.text;
        text.textContent = found.message;
      } catch {
        text.textContent = "The server cannot be reached.";
      }
      announce(text.textContent);
      return null;
    };
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const hide = show.textContent === "Hide";
      const value = hide ? masked : await read();
      if (value === null) return;
      text.textContent = value;
      show.textContent = hide ? "Reveal" : "Hide";
      show.ariaLabel = `${show.textContent} ${this.dataset.name}`;
    });
    const copier = button("btn icon", "copy", `Copy ${this.dataset.name}`);
    copier.addEventListener("click", async () => {
      const value = await read();
      if (value !== null) copy(value);
    });
    this.append(copier);
  }
}

customElements.define("secret-value", SecretValue);
