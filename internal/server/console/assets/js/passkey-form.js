// passkey-form asks the browser for a passkey and sends its answer with the form inside.
class PasskeyForm extends HTMLElement {
  connectedCallback() {
    const able = window.PublicKeyCredential?.parseRequestOptionsFromJSON && location.origin === this.dataset.origin;
    if (!able) return;
    this.hidden = false;
    this.form = this.querySelector("form");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
  }

  async ask() {
    const button = this.querySelector("button");
    button.disabled = true;
    this.say("");
    try {
      const answer = await fetch(this.dataset.question, { headers: { Accept: "application/json" } });
      const { options, state, message } = await answer.json();
      if (!answer.ok) return this.say(message);
      const credential = await (options.user
        ? navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
        : navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) }));
      this.form.elements.state.value = state;
      this.form.elements.answer.value = JSON.stringify(credential);
      this.form.submit();
    } catch (error) {
      this.say(
        error.name === "InvalidStateError"
          ? "This device has a passkey of yours already."
          : "The browser did not use a passkey: it was cancelled, took too long, or no passkey fits.",
      );
    } finally {
      button.disabled = false;
    }
  }

  say(text) {
    this.querySelector("[role=status]").textContent = text;
  }
}

customElements.define("passkey-form", PasskeyForm);
