// What is around the tabs: the address remembers which one is open, arrow keys go from one to the
// next, and every screen has one place for short messages.

import { on } from "/edgeapp/static/session.js";
import { make } from "/edgeapp/static/parts.js";

const KEYS = { ArrowRight: 1, ArrowLeft: -1 };
const TOAST_MS = 6000;

const tabs = () => [...document.querySelectorAll("#ea-tabs [role=tab]")];

function open(name) {
  const tab = tabs().find((one) => one.dataset.tabId === name);
  if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
}

function arrange(list) {
  list.setAttribute("aria-label", "EdgeApp");
  const settle = () => {
    for (const tab of tabs()) {
      const selected = tab.getAttribute("aria-selected") === "true";
      tab.tabIndex = selected ? 0 : -1;
      // A panel that was not looked at yet is not there.
      if (!selected && !document.getElementById(tab.getAttribute("aria-controls") || "-")) {
        tab.removeAttribute("aria-controls");
      }
      if (selected) {
        history.replaceState(null, "", `#${tab.dataset.tabId}`);
        document.body.dataset.tab = tab.dataset.tabId;
        dispatchEvent(new CustomEvent("ea-tab", { detail: tab.dataset.tabId }));
      }
    }
  };
  list.addEventListener("keydown", (event) => {
    const all = tabs();
    const at = all.indexOf(document.activeElement);
    let next = null;
    if (event.key in KEYS) next = all.at((at + KEYS[event.key]) % all.length);
    if (event.key === "Home") next = all[0];
    if (event.key === "End") next = all.at(-1);
    if (at < 0 || !next) return;
    event.preventDefault();
    next.focus();
    next.click();
  });
  const wanted = location.hash.slice(1);
  new MutationObserver(settle).observe(list, { attributeFilter: ["aria-selected"], subtree: true });
  settle();
  if (wanted) open(wanted);
  addEventListener("hashchange", () => open(location.hash.slice(1)));
}

function whenThere(selector, act) {
  const found = document.querySelector(selector);
  if (found) return act(found);
  const observer = new MutationObserver(() => {
    const late = document.querySelector(selector);
    if (!late) return;
    observer.disconnect();
    act(late);
  });
  observer.observe(document.documentElement, { childList: true, subtree: true });
}

/** A short message at the edge of the screen. */
export function toast(text) {
  const place =
    document.querySelector(".ea-toasts") ??
    document.querySelector(".gradio-container main").appendChild(make("div", { class: "ea-toasts", role: "status" }));
  const shown = make("p", {}, text);
  place.append(shown);
  setTimeout(() => shown.remove(), TOAST_MS);
}

whenThere("#ea-tabs div[role=tablist]", arrange);
on("lost", () => toast("The connection to EdgeApp is lost. It is tried again."));
on("hello", ({ user }) => {
  if (!user || document.querySelector(".ea-person")) return;
  const out = make("button", { type: "submit", class: "ea-quiet" }, "Log out");
  const form = make("form", { class: "ea-person", method: "post", action: "/logout" }, out);
  out.title = user;
  addEventListener("ea-tab", ({ detail }) => (form.dataset.tab = detail));
  whenThere(".gradio-container main", (main) => main.append(form));
});
on("warning", ({ message }) => toast(message));
