// copy-text adds a button that copies the element's text.
import { element } from "./html.js";

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages without encryption have no clipboard API.
  const area = element("textarea", { value: text, className: "off-screen" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

class CopyText extends HTMLElement {
  connectedCallback() {
    if (this.querySelector("button")) return;
    const button = element("button", { type: "button", className: "button small", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await copy(this.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    this.append(button);
  }
}

customElements.define("copy-text", CopyText);
