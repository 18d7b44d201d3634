// @ts-check
// How records are listed: by day, with titles that differ, and with the words searched for marked.

import { fold, occurrencesIn } from "../editor/search.js";
import { locale, t } from "../texts.js";

/**
 * @typedef {object} Summary
 * @property {number} id
 * @property {string} kind "live", "file" or "text"
 * @property {string} title
 * @property {string} created ISO 8601
 * @property {number} duration_s
 * @property {string | null} language
 * @property {string | null} target
 * @property {string | null} model
 * @property {boolean} sound
 * @property {string} excerpt
 */

/** What a record is of, in words.
 * @type {Record<string, string>} */
export const KINDS = { live: t("Live"), file: t("File"), text: t("Text") };

const DAY_MS = 86_400_000;
const LONGEST_NAME = 80;
const SUFFIX = /\.(aac|aiff?|avi|flac|m4a|m4v|mka|mkv|mov|mp3|mp4|mpe?g|oga|ogg|ogv|opus|wav|webm|wma|wmv)$/i;

/** @param {Date} date */
const dayOf = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();

/**
 * The name of a day, as a heading.
 * @param {Date} date
 * @param {Date} now
 */
export function dayName(date, now) {
  const days = Math.round((dayOf(now) - dayOf(date)) / DAY_MS);
  if (days === 0) return t("Today");
  if (days === 1) return t("Yesterday");
  /** @type {Intl.DateTimeFormatOptions} */
  const format = { weekday: "long", day: "numeric", month: "long" };
  if (date.getFullYear() !== now.getFullYear()) format.year = "numeric";
  return date.toLocaleDateString(locale, format);
}

/**
 * Records by day, in their order.
 * @param {Summary[]} records
 * @param {Date} now
 * @returns {{day: string, records: Summary[]}[]}
 */
export function byDay(records, now) {
  /** @type {{day: string, records: Summary[]}[]} */
  const groups = [];
  for (const record of records) {
    const day = dayName(new Date(record.created), now);
    if (groups.at(-1)?.day === day) groups[groups.length - 1].records.push(record);
    else groups.push({ day, records: [record] });
  }
  return groups;
}

/**
 * Titles of which no two are the same: equal ones get the time at which their record began.
 * @param {Summary[]} records
 * @returns {Map<number, string>} by record
 */
export function distinctTitles(records) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { title } of records) counts.set(title, (counts.get(title) ?? 0) + 1);
  return new Map(
    records.map(({ id, title, created }) => {
      if (counts.get(title) === 1) return [id, title];
      const when = new Date(created);
      const day = when.toLocaleDateString(locale, { day: "numeric", month: "short" });
      const time = when.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
      return [id, `${title || t("Untitled")} (${day}, ${time})`];
    }),
  );
}

/**
 * A text in parts, of which those are hits that a word of the query is found in.
 * @param {string} text
 * @param {string} query
 * @returns {{text: string, hit: boolean}[]}
 */
export function marked(text, query) {
  const words = query.split(/\s+/).filter(Boolean).map((word) => fold(word).text);
  const places = words.flatMap((word) => occurrencesIn(text, word)).sort((a, b) => a.start - b.start);
  const parts = [];
  let at = 0;
  for (const { start, end } of places) {
    if (end <= at) continue;
    if (start > at) parts.push({ text: text.slice(at, start), hit: false });
    parts.push({ text: text.slice(Math.max(at, start), end), hit: true });
    at = end;
  }
  if (at < text.length) parts.push({ text: text.slice(at), hit: false });
  return parts;
}

/**
 * The name of a download, without a suffix: the title, as far as file systems allow.
 * @param {string} title
 */
export function fileName(title) {
  const allowed = title.replace(SUFFIX, "").replace(/[\\/:*?"<>|\x00-\x1f]+/g, "-");
  const name = allowed.replace(/\s+/g, " ").trim().replace(/^\.+|[.\s]+$/g, "");
  return [...name].slice(0, LONGEST_NAME).join("").trim() || "session";
}

/**
 * The downloads that are offered for a transcript.
 * @param {{timed: boolean, target: string | null}} transcript
 * @returns {{label: string, format: string, which: string}[]}
 */
export function downloads({ timed, target }) {
  const texts = [
    { label: t("Text"), format: "txt" },
    { label: "Markdown", format: "md" },
    { label: "Word (docx)", format: "docx" },
  ];
  const cues = [
    { label: t("Subtitles (srt)"), format: "srt" },
    { label: t("Subtitles (vtt)"), format: "vtt" },
  ];
  const formats = timed ? [...texts, ...cues] : texts;
  const original = formats.map((each) => ({ ...each, which: "" }));
  const json = timed ? [{ label: "JSON", format: "json", which: "" }] : [];
  if (!target) return [...original, ...json];
  const translated = formats.map((each) => ({ ...each, label: `${each.label}, ${target}`, which: "translated" }));
  const both = formats.map((each) => ({ ...each, label: t("{format}, both languages", { format: each.label }), which: "both" }));
  return [...original, ...translated, ...both, ...json];
}
