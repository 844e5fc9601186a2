// live-page receives the changes of the page from the page's own URL as an event stream.
// It disconnects while the tab is hidden, because browsers limit the connections per server.
import { update } from "./held-rows.js";
import { morph, parse, parseElement } from "./html.js";

const pollEvery = 5000;

const show = (old, wanted) => (old.hasAttribute("data-held") ? update : morph)(old, wanted);

class LivePage extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "status");
    this.onVisibility = () => (document.hidden ? this.close() : this.open());
    document.addEventListener("visibilitychange", this.onVisibility);
    window.addEventListener("pagehide", (this.onHide = () => this.close()));
    window.addEventListener("pageshow", (this.onShow = (event) => event.persisted && this.open()));
    if (!document.hidden) this.open();
  }

  disconnectedCallback() {
    this.close();
    document.removeEventListener("visibilitychange", this.onVisibility);
    window.removeEventListener("pagehide", this.onHide);
    window.removeEventListener("pageshow", this.onShow);
  }

  open() {
    if (this.source || this.ended) return;
    const source = new EventSource(this.address());
    this.source = source;
    source.addEventListener("open", () => this.say(""));
    source.addEventListener("element", (event) => this.element(JSON.parse(event.data)));
    source.addEventListener("title", (event) => this.title(JSON.parse(event.data)));
    source.addEventListener("bye", (event) => this.bye(JSON.parse(event.data)));
    source.addEventListener("log", (event) =>
      document.dispatchEvent(new CustomEvent("log-grew", { detail: JSON.parse(event.data) })));
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) {
        this.close();
        this.poll();
      } else {
        this.say("The connection to the server is interrupted. Reconnecting…");
      }
    });
  }

  // address is that of the page, up to the newest entry that its list had when it was loaded.
  address() {
    const query = new URLSearchParams(location.search);
    if (this.dataset.upto) query.set("upto", this.dataset.upto);
    const text = query.toString();
    return (this.dataset.of ?? location.pathname) + (text && `?${text}`);
  }

  close() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
  }

  element({ id, html }) {
    const old = document.getElementById(id);
    const wanted = parseElement(html);
    if (old && wanted) show(old, wanted);
    this.dispatchEvent(new CustomEvent("page-changed", { bubbles: true, detail: { id } }));
  }

  title({ title, mark }) {
    document.title = title;
    const icon = document.querySelector("link[rel=icon]");
    if (icon) icon.href = icon.href.replace(/[a-z]+\.svg$/, `${mark || "mark"}.svg`);
  }

  bye(reason) {
    this.close();
    switch (reason) {
      case "signed-out":
        this.ended = true;
        this.say("You are signed out.", { text: "Sign in", href: `/-/login?next=${encodeURIComponent(location.pathname + location.search)}` });
        break;
      case "denied":
        this.ended = true;
        this.say("You may no longer see this page.", { text: "Go to the start page", href: "/" });
        break;
      case "changed":
        this.ended = true;
        this.say("This page has changed and cannot be updated.", { text: "Load it again", href: location.href });
        break;
      default:
        this.say("The server is not available. Reconnecting…");
        this.timer = setTimeout(() => this.open(), 1000 + Math.random() * 3000);
    }
  }

  // poll loads the page at intervals, for servers with too many event streams.
  poll() {
    if (this.ended || document.hidden) return;
    this.timer = setTimeout(async () => {
      try {
        const answer = await fetch(this.address(), { headers: { Accept: "text/html" } });
        if (answer.redirected) return this.bye("signed-out");
        const page = parse(await answer.text());
        for (const wanted of page.querySelectorAll("[data-live]")) {
          const old = document.getElementById(wanted.id);
          if (old) show(old, wanted);
        }
        this.say("");
      } catch {
        this.say("The server cannot be reached. Trying again…");
      }
      this.poll();
    }, pollEvery * (1 + Math.random()));
  }

  say(text, link) {
    this.replaceChildren();
    this.className = text ? "note n-warn" : "";
    if (!text) return;
    this.append(text, " ");
    if (link) {
      const a = document.createElement("a");
      a.className = "btn small";
      a.href = link.href;
      a.textContent = link.text;
      this.append(a);
    }
  }
}

customElements.define("live-page", LivePage);
