// Functions that several tabs share: pickers, errors, downloads.

import { make } from "/edgeapp/static/elements.js";
import { ask, on } from "/edgeapp/static/session.js";
import { fromServer, languageName, locale, t } from "/edgeapp/static/texts.js";

export { clock, make, size } from "/edgeapp/static/elements.js";

const COPIED_MS = 1500;

let options = null;

/** A promise of the picker options of the installed models: {recognizers, automatic, pairs, languages}.
 * reload: ask the server again. */
function pickerOptions(reload = false) {
  if (!options || reload) {
    options = ask({ type: "picker_options" });
    options.catch(() => (options = null));
  }
  return options;
}

/** Call `listener` with the picker options, now and whenever they change. */
export function onPickerOptions(listener) {
  const update = () => pickerOptions().then(listener, () => {});
  on("hello", update);
  addEventListener("ea-picker-options", update);
}

/** Update all pickers after a model was installed or removed. */
export function reloadPickerOptions() {
  pickerOptions(true).then(() => dispatchEvent(new Event("ea-picker-options")), () => {});
}

/** Set the options of a select, [value, label] pairs; its value is kept if it is still offered. */
export function fill(select, options) {
  const value = select.value;
  select.replaceChildren(...options.map(([value, label]) => new Option(label, value)));
  if (options.some(([other]) => other === value)) select.value = value;
}

/** Fill the pickers of Live and File: spoken language, target language, model. */
export function fillPickers(root, { recognizers, automatic, pairs, languages }) {
  const spoken = new Set(recognizers.flatMap((model) => model.languages));
  const detect = spoken.size > 1 ? [["", t("Detect")]] : [];
  const language = root.querySelector("[name=language]");
  fill(language, [...detect, ...named(spoken, languages)]);
  // The only language of the models before these was not chosen.
  if (language.dataset.only && detect.length) language.value = "";
  language.dataset.only = detect.length ? "" : "yes";
  const target = root.querySelector("[name=target]");
  const targets = new Set();
  for (const pair of pairs) {
    if (!language.value || !pair.source || pair.source === language.value) targets.add(pair.target);
  }
  fill(target, [["", t("None")], ...named(targets, languages)]);
  const suitable = recognizers.filter((model) => !language.value || model.languages.includes(language.value));
  const models = suitable.map(({ name }) => [name, name]);
  // A bundled model is used if it is named, never because it is the first one.
  if (!language.value || automatic.includes(language.value) || suitable.every((model) => model.bundled)) {
    models.unshift(["", t("Automatic")]);
  }
  fill(root.querySelector("[name=model]"), models);
}

/** Keep the choices of a tab's pickers in this browser, and use them next time. Before the pickers
 * are filled. */
export function remember(root, key) {
  const selects = [...root.querySelectorAll(".ea-bar select")];
  const stored = JSON.parse(localStorage.getItem(key) ?? "{}");
  for (const select of selects) {
    const value = stored[select.name];
    // A value is an option until the offers are known; `fill` drops it if it is not offered.
    const offered = [...select.options].some((option) => option.value === value);
    if (value && offered) select.value = value;
    else if (value) select.append(new Option(value, value, true, true));
  }
  root.addEventListener("change", ({ target }) => {
    if (!selects.includes(target)) return;
    // The only language of the installed models was not chosen.
    const values = selects.map(({ name, value, dataset }) => [name, dataset.only ? "" : value]);
    localStorage.setItem(key, JSON.stringify(Object.fromEntries(values)));
  });
}

/** Language codes as [code, name] pairs, sorted by name. */
export function named(codes, languages) {
  const pairs = [...codes].map((code) => [code, languageName(code, languages[code])]);
  return pairs.sort((a, b) => a[1].localeCompare(b[1], locale));
}

/** The values of a tab's pickers; automatic choices are left out, and a language that is the only one. */
export function picked(root) {
  const values = {};
  for (const select of root.querySelectorAll(".ea-bar select")) {
    if (select.value && !select.dataset.only) values[select.name] = select.value;
  }
  return values;
}

/** Show an error message in a tab; "" hides it. */
export function problem(root, text) {
  const place = root.querySelector(".ea-problem");
  place.textContent = text;
  place.hidden = !text;
}

/** Show what is to be known about a tab's work as long as that is shown. @param {string[]} notes */
export function showNotes(root, notes) {
  const place = root.querySelector(".ea-note");
  place.textContent = notes.join("\n");
  place.hidden = !notes.length;
}

/** Copy a text; the button says so for a while.
 * @param {string} text @param {HTMLButtonElement} button @param {HTMLElement} place where the text is shown */
export async function copyText(text, button, place) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without HTTPS there is no clipboard: select the text, to be copied by hand.
    getSelection().selectAllChildren(place);
    return;
  }
  button.textContent = t("Copied");
  setTimeout(() => (button.textContent = t("Copy")), COPIED_MS);
}

/** Let the browser download a text or a blob as a file. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: text.type ?? "text/plain" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Download a transcript in a format. Throws an Error with the server's message. */
export async function saveTranscript(name, format, transcript) {
  const { which = transcript.translated ? "translated" : "" } = transcript;
  const reply = await fetch("/edgeapp/export", {
    method: "POST",
    body: JSON.stringify({ ...transcript, format, which }),
  });
  if (!reply.ok) throw new Error(fromServer((await reply.json()).error));
  const language = { translated: transcript.target, both: `${transcript.language}-${transcript.target}` }[which];
  const mark = language && format !== "json" ? `.${language}` : "";
  download(`${name}${mark}.${format}`, await reply.blob());
}
