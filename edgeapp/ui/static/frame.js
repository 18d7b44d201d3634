// Behaviour of the tab bar and the page's frame: the URL's hash is the open tab, arrow keys move
// between tabs, and the title shows that the microphone is open.

import { labelApiView } from "/edgeapp/static/api-view.js";
import { sayCompiling } from "/edgeapp/static/compiling.js";
import "/edgeapp/static/download.js"; // from the first message on
import { catchDrops } from "/edgeapp/static/dropped.js";
import { on } from "/edgeapp/static/session.js";
import { fromServer, t, translate } from "/edgeapp/static/texts.js";
import { toast } from "/edgeapp/static/toast.js";
import { addTools } from "/edgeapp/static/tools.js";

const KEYS = { ArrowRight: 1, ArrowLeft: -1 };

const tabs = () => [...document.querySelectorAll("#ea-tabs [role=tab]")];

function open(name) {
  const tab = tabs().find((tab) => tab.dataset.tabId === name);
  if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
}

function setUpTabs(list) {
  list.setAttribute("aria-label", "EdgeApp");
  translate(list);
  const update = () => {
    for (const tab of tabs()) {
      const selected = tab.getAttribute("aria-selected") === "true";
      tab.tabIndex = selected ? 0 : -1;
      // Gradio creates the panel of a tab when the tab is first opened.
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
    const index = all.indexOf(document.activeElement);
    let next = null;
    if (event.key in KEYS) next = all.at((index + KEYS[event.key]) % all.length);
    if (event.key === "Home") next = all[0];
    if (event.key === "End") next = all.at(-1);
    if (index < 0 || !next) return;
    event.preventDefault();
    next.focus();
    next.click();
  });
  // The tab of the address, unless another one was clicked while the page was loading.
  const untouched = tabs()[0]?.getAttribute("aria-selected") === "true";
  const initial = location.hash.slice(1);
  new MutationObserver(update).observe(list, { attributeFilter: ["aria-selected"], subtree: true });
  update(); // the hash is that of the first tab now
  if (untouched) open(initial);
  addEventListener("hashchange", () => open(location.hash.slice(1)));
}

/** Call `act` with an element, now or as soon as it is added to the page. */
function whenAdded(selector, act) {
  const found = document.querySelector(selector);
  if (found) return act(found);
  const observer = new MutationObserver(() => {
    const added = document.querySelector(selector);
    if (!added) return;
    observer.disconnect();
    act(added);
  });
  observer.observe(document.documentElement, { childList: true, subtree: true });
}

catchDrops(open);
whenAdded("#ea-tabs div[role=tablist]", setUpTabs);
on("lost", () => toast(t("The connection to EdgeApp is lost. Reconnecting.")));
whenAdded(".gradio-container main", (main) => {
  addTools(main, tabs);
  sayCompiling(main);
});
labelApiView();
on("warning", ({ message }) => toast(fromServer(message)));

const TITLE = document.title || "EdgeApp";
new MutationObserver(() => {
  const marks = { yes: "● ", paused: "❚❚ " };
  document.title = (marks[document.body.dataset.recording] ?? "") + TITLE;
}).observe(document.body, { attributeFilter: ["data-recording"] });
