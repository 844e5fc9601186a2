// local-time shows a time relative to now, and its local form in the title.
import { timeZone } from "./html.js";

const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

function words(seconds) {
  const size = Math.abs(seconds);
  for (const [unit, length] of units) {
    if (size >= length || unit === "second") return relative.format(Math.round(seconds / length), unit);
  }
  return "";
}

function clock(seconds) {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const all = Math.max(0, Math.floor(seconds));
  const rest = `${two((all % 3600) / 60)}:${two(all % 60)}`;
  return all >= 3600 ? `${Math.floor(all / 3600)}:${rest}` : rest.replace(/^0/, "");
}

// duration returns seconds in their two largest units, like the server.
function duration(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  if (all < 60) return `${all} s`;
  const [large, largeName, small, smallName] = all < 3600 ? [60, "min", 1, "s"] : all < 86400 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  const rest = Math.floor((all % large) / small);
  return `${Math.floor(all / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

// age returns seconds in one unit, like the server.
function age(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  const steps = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [14 * 86400, 86400, "d"], [Infinity, 7 * 86400, "w"]];
  const [, size, name] = steps.find(([limit]) => all < limit);
  return `${Math.floor(all / size)} ${name}`;
}

// soon returns a future time like the server, but in the user's zone.
function soon(at) {
  const date = new Date(at);
  const day = (t) => Date.parse(new Date(t).toLocaleDateString("en-CA", { timeZone }));
  const days = (day(at) - day(Date.now())) / 86400000;
  if (days === 0) return date.toLocaleTimeString("en-GB", { timeZone, hour: "2-digit", minute: "2-digit" });
  return date.toLocaleDateString("en-GB", days > 0 && days < 7 ? { timeZone, weekday: "short" } : { timeZone, day: "numeric", month: "short" });
}

const shown = new Set();
let timer;
let queued = false;

function tick() {
  clearTimeout(timer);
  let soon = 30000;
  for (const element of shown) soon = Math.min(soon, element.update());
  if (shown.size > 0 && !document.hidden) timer = setTimeout(tick, soon);
}
document.addEventListener("visibilitychange", tick);
// A morphed element shows the server's absolute time until this.
document.addEventListener("page-changed", tick);

class LocalTime extends HTMLElement {
  connectedCallback() {
    shown.add(this);
    if (queued) return; // one update for all elements of a page
    queued = true;
    queueMicrotask(() => {
      queued = false;
      tick();
    });
  }

  disconnectedCallback() {
    shown.delete(this);
  }

  // update returns the milliseconds until the next update.
  update() {
    const time = this.querySelector("time");
    const at = Date.parse(time?.dateTime ?? "");
    if (Number.isNaN(at)) return 30000;
    const seconds = (at - Date.now()) / 1000;
    const form = this.dataset.form;
    const date = new Date(at);
    const utc = `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    const local = date.toLocaleString("en-GB", { timeZone, timeZoneName: "short" });
    const exact = local.endsWith("UTC") ? utc : `${local} (${utc})`;
    const time24 = { timeZone, hour: "2-digit", minute: "2-digit" };
    const forms = { time: () => date.toLocaleTimeString("en-GB", time24), since: () => clock(-seconds), for: () => duration(-seconds), age: () => age(-seconds), exact: () => exact, soon: () => soon(at) };
    const text = (forms[form] ?? (() => words(seconds)))();
    if (time.textContent !== text) time.textContent = text;
    if (time.title !== exact) time.title = exact;
    return form === "since" || form === "for" || Math.abs(seconds) < 60 ? 1000 : 30000;
  }
}

customElements.define("local-time", LocalTime);

// The server groups times by the days of this zone from the next page on.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (/^[\w+/-]+$/.test(zone ?? "") && !document.cookie.split("; ").includes(`zone=${zone}`)) {
  document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=lax`;
}
