// How the history is listed; see editor.test.mjs.

import assert from "node:assert/strict";
import { test } from "node:test";

const STATIC = new URL("../../../edgeapp/ui/static/", import.meta.url);
const { byDay, dayName, distinctTitles, downloads, fileName, marked } = await import(new URL("history/listing.js", STATIC));

const NOW = new Date(2026, 10, 23, 0, 30);
const record = (id, title, ...time) => ({ id, title, created: new Date(...time).toISOString() });

test("days have names", () => {
  assert.equal(dayName(new Date(2026, 10, 23, 0, 1), NOW), "Today");
  assert.equal(dayName(new Date(2026, 10, 22, 23, 59), NOW), "Yesterday");
  assert.match(dayName(new Date(2026, 10, 16, 12), NOW), /^Monday,? 16 November$/);
  assert.match(dayName(new Date(2025, 10, 16, 12), NOW), /^Sunday,? 16 November 2025$/);
});

test("records are grouped by day, in their order", () => {
  const records = [record(3, "c", 2026, 10, 23, 0, 5), record(2, "b", 2026, 10, 22, 9), record(1, "a", 2026, 10, 22, 8)];
  assert.deepEqual(byDay(records, NOW).map(({ day, records }) => [day, records.map((each) => each.id)]), [
    ["Today", [3]], ["Yesterday", [2, 1]],
  ]);
  assert.deepEqual(byDay([], NOW), []);
});

test("equal titles get their time", () => {
  const records = [record(3, "talk", 2026, 10, 22, 9, 5), record(2, "other", 2026, 10, 22), record(1, "talk", 2026, 10, 21, 14, 30)];
  const titles = distinctTitles(records);
  assert.deepEqual([...titles.values()], ["talk (22 Nov, 09:05)", "other", "talk (21 Nov, 14:30)"]);
});

test("the words of a search are marked", () => {
  assert.deepEqual(marked("The Café is closed", "cafe CLOSED"), [
    { text: "The ", hit: false }, { text: "Café", hit: true }, { text: " is ", hit: false }, { text: "closed", hit: true },
  ]);
  assert.deepEqual(marked("abc", "ab bc"), [{ text: "ab", hit: true }, { text: "c", hit: true }]);
  assert.deepEqual(marked("abc", " "), [{ text: "abc", hit: false }]);
});

test("downloads are named after the title", () => {
  assert.equal(fileName("talk.flac"), "talk");
  assert.equal(fileName("v1.2 of: a/b"), "v1.2 of- a-b");
  assert.equal(fileName("..\\..\\x\n"), "-..-x-");
  assert.equal(fileName(" … "), "…");
  assert.equal(fileName("..."), "session");
  assert.equal([...fileName("🎉".repeat(200))].length, 80);
});

test("what can be downloaded", () => {
  const names = (given) => downloads(given).map(({ format, which }) => format + (which && `:${which}`));
  assert.deepEqual(names({ timed: false, target: null }), ["txt", "md", "docx"]);
  assert.deepEqual(names({ timed: true, target: null }), ["txt", "md", "docx", "srt", "vtt", "json"]);
  assert.ok(names({ timed: true, target: "de" }).includes("srt:both"));
});
