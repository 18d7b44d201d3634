// The corner of the page: what it has asked of other machines, light or dark, keys, logging out.

import { onDownload } from "/edgeapp/static/download.js";
import { make } from "/edgeapp/static/elements.js";
import { on } from "/edgeapp/static/session.js";
import { chooseLanguage, language, LANGUAGES, t } from "/edgeapp/static/texts.js";
import { toast } from "/edgeapp/static/toast.js";

const THEME = "ea-theme"; // in localStorage; head.js applies it before the page is drawn
// What a reload of the page would lose: work, and what it shows that the history may not have.
const UNFINISHED = ".ea-live:not([data-state=idle]), .ea-live .ea-line-of, .ea-file:not([data-state=empty]), .ea-pictures:not([data-state=empty]), .ea-queue:not([hidden])";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const NAMES = { auto: t("Theme: as the system"), light: t("Theme: light"), dark: t("Theme: dark") };
const KEYS = [
  ["1 … 6", t("Open a tab")],
  ["S", t("Start or stop captions")],
  ["P", t("Pause captions, or go on")],
  ["B", t("Big text, or back")],
  ["Esc", t("Leave big text")],
  ["← →", t("Move between tabs, or within a recording")],
  ["?", t("Show these keys")],
];

const quiet = (label, text) =>
  make("button", { type: "button", class: "ea-quiet", "aria-label": label, title: label }, text);

/** The number of requests to other machines: those of the page itself, and the downloads of models
 * that were asked for here. */
class Badge {
  constructor() {
    this.count = 0;
    this.text = make("span", {});
    this.element = make("span", { class: "ea-badge" }, this.text);
    const elsewhere = ({ name }) => /^(https?|wss?):/.test(name) && new URL(name).host !== location.host;
    new PerformanceObserver((list) => this.add(list.getEntries().filter(elsewhere).length)).observe({
      type: "resource",
      buffered: true,
    });
    document.addEventListener("securitypolicyviolation", () => this.add(1));
    let downloading = false;
    onDownload(({ state }) => {
      if (state === "refused") return;
      if (state === "running" && !downloading) this.add(1);
      downloading = state === "running";
    });
    this.add(0);
  }

  /** @param {number} more */
  add(more) {
    this.count += more;
    this.text.textContent = t("{count} to others", { count: this.count });
    this.element.dataset.count = String(this.count); // shown alone where there is little room
    this.element.title = t("Requests to other machines since this page was opened, downloads of models included: {count}", {
      count: this.count,
    });
    this.element.classList.toggle("ea-some", this.count > 0);
  }
}

function themeButton() {
  const stored = localStorage.getItem(THEME);
  let theme = stored && stored in NEXT ? stored : "auto";
  const button = quiet(NAMES[theme], "◐");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const wanted = theme === "dark" || (theme === "auto" && dark.matches);
    if (document.body.classList.contains("dark") !== wanted) document.body.classList.toggle("dark", wanted);
    document.documentElement.style.colorScheme = wanted ? "dark" : "light";
    document.documentElement.style.background = wanted ? "#141412" : "#f7f5f1";
    button.title = NAMES[theme];
    button.setAttribute("aria-label", NAMES[theme]);
  };
  button.onclick = () => {
    theme = NEXT[theme];
    localStorage.setItem(THEME, theme);
    apply();
    dispatchEvent(new Event("ea-theme"));
  };
  // Gradio sets the system's theme when it has started.
  new MutationObserver(apply).observe(document.body, { attributeFilter: ["class"] });
  dark.addEventListener("change", apply);
  apply();
  return button;
}

/** The choice of the page's language. The page is loaded again, unless that would end something. */
function languagePicker() {
  const label = t("Language of the page");
  const picker = make("select", { "aria-label": label, title: label });
  for (const [code, name] of Object.entries(LANGUAGES)) {
    const option = new Option(name, code, code === language, code === language);
    option.lang = code;
    picker.append(option);
  }
  picker.onchange = () => {
    chooseLanguage(picker.value);
    const unfinished = document.querySelector(UNFINISHED);
    const typed = document.querySelector("#ea-text .ea-source");
    const lost = document.body.dataset.recording || unfinished || typed?.value;
    if (lost) toast(t("The language changes when the page is loaded again, so that nothing here is lost."));
    else location.reload();
  };
  return make("label", { class: "ea-pick ea-page-language" }, picker);
}

function keySheet() {
  const sheet = make("dialog", { class: "ea-keys", "aria-label": t("Keys") });
  const rows = KEYS.map(([key, what]) => make("tr", {}, make("th", { scope: "row" }, make("kbd", {}, key)), make("td", {}, what)));
  const close = make("button", { type: "button", class: "ea-quiet" }, t("Close"));
  close.onclick = () => sheet.close();
  sheet.append(make("h2", {}, t("Keys")), make("table", {}, ...rows), close);
  return sheet;
}

/** @param {KeyboardEvent} event @param {HTMLDialogElement} sheet @param {HTMLElement[]} tabs */
function press(event, sheet, tabs) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable=true]")) return;
  const live = { s: ".ea-start", p: ".ea-pause", b: document.querySelector(".ea-big") ? ".ea-big-off" : ".ea-big-on" };
  const key = event.key.toLowerCase();
  if (key === "?") sheet.showModal();
  else if (tabs[Number(key) - 1] && !document.querySelector(".ea-big")) tabs[Number(key) - 1].click();
  else if (key in live && document.body.dataset.tab === "live") document.querySelector(`#ea-live ${live[key]}:not([hidden])`)?.click();
  else return;
  event.preventDefault();
}

/** @param {HTMLElement} main Where the corner goes. @param {() => HTMLElement[]} tabs */
export function addTools(main, tabs) {
  const sheet = keySheet();
  const help = quiet(t("Keys"), "?");
  help.onclick = () => sheet.showModal();
  const corner = make("div", { class: "ea-tools" }, new Badge().element, languagePicker(), themeButton(), help);
  main.append(corner, sheet);
  addEventListener("ea-tab", ({ detail }) => (corner.dataset.tab = detail));
  corner.dataset.tab = document.body.dataset.tab ?? "";
  addEventListener("keydown", (event) => press(event, sheet, tabs()));
  on("hello", ({ user }) => {
    if (!user || corner.querySelector(".ea-person")) return;
    const out = make("button", { type: "submit", class: "ea-quiet" }, t("Log out"));
    out.title = user;
    corner.append(make("form", { class: "ea-person", method: "post", action: "/logout" }, out));
  });
}
