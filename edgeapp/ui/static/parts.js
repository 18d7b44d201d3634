// Functions that several tabs share: pickers, times and sizes, elements, downloads.

import { ask, on } from "/edgeapp/static/session.js";

let options = null;

/** A promise of the picker options of the installed models: {recognizers, pairs, languages}.
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
export function fillPickers(root, { recognizers, pairs, languages }) {
  const spoken = new Set(recognizers.flatMap((model) => model.languages));
  const detect = spoken.size > 1 ? [["", "Detect"]] : [];
  const language = root.querySelector("[name=language]");
  fill(language, [...detect, ...named(spoken, languages)]);
  const target = root.querySelector("[name=target]");
  const targets = new Set();
  for (const pair of pairs) {
    if (!language.value || !pair.source || pair.source === language.value) targets.add(pair.target);
  }
  fill(target, [["", "None"], ...named(targets, languages)]);
  const suitable = recognizers.filter((model) => !language.value || model.languages.includes(language.value));
  const models = [["", "Automatic"], ...suitable.map(({ name }) => [name, name])];
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
    if (value) select.append(new Option(value, value, true, true));
  }
  root.addEventListener("change", ({ target }) => {
    if (!selects.includes(target)) return;
    const values = selects.map(({ name, value }) => [name, value]);
    localStorage.setItem(key, JSON.stringify(Object.fromEntries(values)));
  });
}

/** Language codes as [code, name] pairs, sorted by name. */
export function named(codes, languages) {
  const pairs = [...codes].map((code) => [code, languages[code] ?? code]);
  return pairs.sort((a, b) => a[1].localeCompare(b[1]));
}

/** The values of a tab's pickers; automatic choices are left out. */
export function picked(root) {
  const values = {};
  for (const select of root.querySelectorAll(".ea-bar select")) {
    if (select.value) values[select.name] = select.value;
  }
  return values;
}

/** 75 → "1:15", 3675 → "1:01:15". */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  if (whole >= 3600) parts.unshift(Math.floor(whole / 3600));
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : part)).join(":");
}

/** 1500000 → "1.5 MB". */
export function size(bytes) {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(1)} GB`;
  return bytes >= 1e8 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Create an element. given: attributes, and properties that are not strings. */
export function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Show an error message in a tab; "" hides it. */
export function problem(root, text) {
  const place = root.querySelector(".ea-problem");
  place.textContent = text;
  place.hidden = !text;
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
  if (!reply.ok) throw new Error((await reply.json()).error);
  const language = { translated: transcript.target, both: `${transcript.language}-${transcript.target}` }[which];
  const mark = language && format !== "json" ? `.${language}` : "";
  download(`${name}${mark}.${format}`, await reply.blob());
}
