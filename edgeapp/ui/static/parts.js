// Small things that several tabs need.

import { ask, on } from "/edgeapp/static/session.js";

let known = null;

/** What can be chosen on this machine: {recognisers, pairs, languages}. Again: look again. */
export function choices(again = false) {
  if (!known || again) {
    known = ask({ type: "picker_options" });
    known.catch(() => (known = null));
  }
  return known;
}

/** Call `fill` with the choices, now and whenever they change. */
export function withChoices(fill) {
  const look = () => choices().then(fill, () => {});
  on("hello", look);
  addEventListener("ea-choices", look);
}

/** The models have changed: all pickers look again. */
export function choicesChanged() {
  choices(true).then(() => dispatchEvent(new Event("ea-choices")), () => {});
}

/** Put [value, label] pairs into a select, keeping its choice where that is still there. */
export function fill(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, label]) => new Option(label, value)));
  if (options.some(([value]) => value === before)) select.value = before;
}

/** The pickers of Live and File: what is spoken, into what, by which model. */
export function fillPickers(root, { recognisers, pairs, languages }) {
  const spoken = new Set(recognisers.flatMap((one) => one.languages));
  const several = spoken.size > 1 ? [["", "Detect"]] : [];
  const language = root.querySelector("[name=language]");
  fill(language, [...several, ...named(spoken, languages)]);
  const target = root.querySelector("[name=target]");
  const into = new Set();
  for (const pair of pairs) {
    if (!language.value || !pair.source || pair.source === language.value) into.add(pair.target);
  }
  fill(target, [["", "None"], ...named(into, languages)]);
  const fitting = recognisers.filter((one) => !language.value || one.languages.includes(language.value));
  const best = [["", "Best here"], ...fitting.map((one) => [one.name, one.name])];
  fill(root.querySelector("[name=model]"), best);
}

/** Codes as [code, name] pairs, by name. */
export function named(codes, languages) {
  const pairs = [...codes].map((code) => [code, languages[code] ?? code]);
  return pairs.sort((a, b) => a[1].localeCompare(b[1]));
}

/** The values of the pickers, without those that were left open. */
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

/** An element with attributes, properties and children. */
export function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Show what went wrong in a tab's own place for it; "" takes it away. */
export function problem(root, text) {
  const place = root.querySelector(".ea-problem");
  place.textContent = text;
  place.hidden = !text;
}

/** Give the browser a file to keep. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A transcript as a file. Throws an Error with what the server said. */
export async function saveTranscript(name, format, transcript) {
  const translated = Boolean(transcript.translated);
  const reply = await fetch("/edgeapp/export", {
    method: "POST",
    body: JSON.stringify({ ...transcript, format, translated }),
  });
  if (!reply.ok) throw new Error((await reply.json()).error);
  const mark = translated && format !== "json" && transcript.target ? `.${transcript.target}` : "";
  download(`${name}${mark}.${format}`, await reply.text());
}
