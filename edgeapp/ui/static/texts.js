// @ts-check
// The language of the page. Texts are written in English where they are used; languages/CODE.json has
// their translations, and those of the server's messages.

/** @typedef {Record<string, string | Record<string, string>>} Table by English text; where a number
 *   matters, an object with a text for each of the language's plural categories */

const STORE = "ea-language"; // in localStorage: the language that was chosen in the page

/** The languages of the page, by code, in their own words. */
export const LANGUAGES = { en: "English", de: "Deutsch", es: "Español", fr: "Français", zh: "中文" };

const inBrowser = typeof document !== "undefined"; // the tests run some modules in Node
const wanted = inBrowser ? navigator.languages : [];

const loaded = await load(chosen());

/** The code of the page's language: the chosen one, else the browser's first that there is; English
 * if its table cannot be loaded. */
export const language = loaded ? chosen() : "en";

/** The locale of dates and numbers: the browser's own variety of the language, as de-AT. */
export const locale = wanted.find((each) => baseOf(each) === language) ?? (language === "en" ? "en-GB" : language);

const table = loaded ?? { page: {}, server: {} };
const plurals = new Intl.PluralRules(language);
const names = new Intl.DisplayNames(locale, { type: "language", fallback: "none" });
const patterns = Object.keys(table.server).filter((text) => text.includes("{")).map(patternOf);

if (inBrowser) document.documentElement.lang = language;

/** @param {string} tag such as de-AT */
function baseOf(tag) {
  return tag.split("-")[0].toLowerCase();
}

/** @returns {string} */
function chosen() {
  const stored = inBrowser ? localStorage.getItem(STORE) : null;
  const codes = [stored ?? "", ...wanted.map(baseOf)];
  return codes.find((code) => code in LANGUAGES) ?? "en";
}

/** @param {string} code @returns {Promise<{page: Table, server: Record<string, string>} | null>} */
async function load(code) {
  if (code === "en") return null;
  const reply = await fetch(`/edgeapp/static/languages/${code}.json`).catch(() => null);
  return reply?.ok ? reply.json() : null;
}

/** @param {string} text @param {Record<string, unknown>} values */
function insert(text, values) {
  return text.replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place));
}

/**
 * A text in the page's language.
 * @param {string} text in English, with places such as {name}
 * @param {Record<string, unknown>} [values] for the places
 */
export function t(text, values = {}) {
  const found = table.page[text];
  return insert(typeof found === "string" ? found : text, values);
}

/**
 * A text about a number of things, in the page's language.
 * @param {number} count also the value of {count}
 * @param {string} one in English, for 1
 * @param {string} other in English, for other numbers; it is the key of the translation
 * @param {Record<string, unknown>} [values] for the other places
 */
export function plural(count, one, other, values = {}) {
  const found = table.page[other];
  const forms = typeof found === "object" ? found : { one, other };
  const text = forms[plurals.select(count)] ?? forms.other;
  return insert(text, { count: count.toLocaleString(locale), ...values });
}

/** @param {number} value @param {number} digits after the decimal point */
export function decimal(value, digits) {
  return value.toLocaleString(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/**
 * The name of a spoken language, in the page's.
 * @param {string} code
 * @param {string} [english] its English name, if it is known
 */
export function languageName(code, english = "") {
  if (language === "en" && english) return english;
  let name;
  try {
    name = names.of(code);
  } catch {
    // not a code that browsers know
  }
  return name ? name[0].toLocaleUpperCase(locale) + name.slice(1) : english || code;
}

/** Translate the texts, labels and titles of an element that was written in English. @param {Element} root */
export function translate(root) {
  if (language === "en") return;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const [, before, text, after] = /^(\s*)(.*?)(\s*)$/s.exec(node.nodeValue ?? "") ?? [];
    const found = text && table.page[text.replace(/\s+/g, " ")];
    if (typeof found === "string") node.nodeValue = before + found + after;
  }
  for (const name of ["aria-label", "title", "placeholder"]) {
    for (const element of [root, ...root.querySelectorAll(`[${name}]`)]) {
      const found = table.page[(element.getAttribute(name) ?? "").replace(/\s+/g, " ")];
      if (typeof found === "string") element.setAttribute(name, found);
    }
  }
}

/** @param {string} text in English, with places */
function patternOf(text) {
  const parts = text.split(/\{\w+\}/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const places = [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
  return { text, places, pattern: new RegExp(`^${parts.join("(.+?)")}$`, "s") };
}

/**
 * A message of the server in the page's language; in English, if its translation is missing.
 * @param {string} message
 * @returns {string}
 */
export function fromServer(message) {
  if (table.server[message]) return table.server[message];
  for (const { text, places, pattern } of patterns) {
    const values = pattern.exec(message)?.slice(1);
    if (!values) continue;
    // A value may be a message itself, as the reason why a download failed.
    const inserted = places.map((name, i) => [name, fromServer(values[i])]);
    return insert(table.server[text], Object.fromEntries(inserted));
  }
  return message;
}

/** Choose the page's language, from the next time that it is loaded on. @param {string} code */
export function chooseLanguage(code) {
  localStorage.setItem(STORE, code);
}
