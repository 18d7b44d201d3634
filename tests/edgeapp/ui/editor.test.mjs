// The thinking parts of the page's editor; they need no browser. Run by test_scripts.py.

import assert from "node:assert/strict";
import { test } from "node:test";

const STATIC = new URL("../../../edgeapp/ui/static/", import.meta.url);
const load = (name) => import(new URL(name, STATIC));
const model = await load("editor/transcript.js");
const words = await load("editor/words.js");
const { fold, occurrencesIn } = await load("editor/search.js");
const { UndoStack } = await load("editor/undo.js");
const { messagesBetween, storedRows } = await load("editor/changes.js");

const spoken = (text, start = 0, each = 1, probability = 0.9) =>
  text.split(" ").map((word, i) => ({ word: ` ${word}`, start: start + i * each, end: start + (i + 1) * each, probability }));

const segment = (text, start) => ({
  start,
  end: start + text.split(" ").length,
  text: ` ${text}`,
  words: spoken(text, start),
  tokens: [1],
});

function talk() {
  const rows = [segment("Mr Kowalsky sees me.", 0), segment("I know", 4), segment("Kowalsky well.", 6)];
  const cues = [
    { start: 0, end: 4, text: "Herr Kowalsky sieht mich." },
    { start: 4, end: 8, text: "Ich kenne Kowalsky gut." },
  ];
  return model.fromRecord(rows, cues);
}

const texts = (transcript) => transcript.rows.map((row) => row.text);
const times = (row) => model.tokensIn(row).map(({ text, start, end }) => [text, start, end]);

test("words keep their times, and new ones share the time of those they replace", () => {
  const tokens = words.tokensOf("one two three", spoken("one two three"), 0, 3);
  const after = words.retime(tokens, "one or more three", 0, 3);
  assert.deepEqual(after.map(({ text, start, end }) => [text, start, end]), [
    ["one", 0, 1], ["or", 1, 1 + 2 / 6], ["more", 1 + 2 / 6, 2], ["three", 2, 3],
  ]);
  assert.deepEqual(after.map((token) => token.probability), [0.9, 1, 1, 0.9]);
  assert.deepEqual(after.map((token) => token.at), [0, 4, 7, 12]);
});

test("words without times share the time of their row", () => {
  const tokens = words.tokensOf("ab cd", [], 10, 14);
  assert.deepEqual(tokens.map(({ start, end }) => [start, end]), [[10, 12], [12, 14]]);
  assert.deepEqual(words.tokensOf("今日は", [], 0, 3).map((token) => token.start), [0, 1, 2]);
  assert.deepEqual(words.tokensOf("", [], 0, 3), []);
});

test("words that appear twice keep their order", () => {
  const a = "a b a c".split(" ");
  assert.deepEqual(words.commonWords(a, "a x b a c".split(" ")), [[0, 0], [1, 2], [2, 3], [3, 4]]);
  assert.deepEqual(words.commonWords(a, []), []);
});

test("stored words have the space before them", () => {
  const stored = words.wordsOf("Hi, 今日", words.tokensOf("Hi, 今日", [], 0, 4));
  assert.deepEqual(stored.map((each) => each.word), [" Hi,", " 今", "日"]);
});

test("a correction is what has changed, without punctuation", () => {
  assert.deepEqual(words.correction("Mr Kowalsky, hello", "Mr Kowalski, hello"), { from: "Kowalsky", to: "Kowalski" });
  assert.deepEqual(words.correction("in New Yorck now", "in New York City now"), { from: "Yorck", to: "York City" });
  assert.equal(words.correction("one two", "one two three"), null);
  assert.equal(words.correction("a b c d e", "v w x y z"), null);
  assert.equal(words.correction("well", "well."), null);
});

test("sentences of the translation belong to the rows in their time", () => {
  assert.deepEqual(talk().cues.map(({ rows, source }) => [rows, source]), [
    [[1], "Mr Kowalsky sees me."],
    [[2, 3], "I know Kowalsky well."],
  ]);
});

test("a correction makes only its own sentence outdated", () => {
  const after = model.withText(talk(), 3, "Kowalski well.");
  assert.deepEqual(model.outdated(after), [{ index: 1, source: "I know Kowalski well." }]);
  const own = model.withCueValues(after, 1, { text: "Ich kenne ihn.", edited: true });
  assert.deepEqual(model.outdated(own), [], "what a person translated stays");
});

test("one correction is made everywhere, in whole words only", () => {
  const places = model.exactOccurrences(talk(), "Kowalsky");
  assert.deepEqual(places.map((place) => place.id), [1, 3]);
  const after = model.withReplaced(talk(), places, "Nowak");
  assert.deepEqual(texts(after), ["Mr Nowak sees me.", "I know", "Nowak well."]);
  assert.deepEqual(model.outdated(after).map((each) => each.index), [0, 1]);
  assert.deepEqual(model.exactOccurrences(talk(), "Kowal"), []);
});

test("several places in a row are replaced", () => {
  const transcript = model.fromRecord([segment("so so so", 0)], []);
  const after = model.withReplaced(transcript, model.occurrences(transcript, "SO"), "very");
  assert.deepEqual(texts(after), ["very very very"]);
  assert.deepEqual(times(after.rows[0]).map(([, start]) => start), [0, 1, 2]);
});

test("a translation is kept whose speaker no row names any more", () => {
  const cue = { start: 0, end: 3, text: "Hallo.", speaker: "Me" };
  assert.deepEqual(model.fromRecord([segment("Hello there.", 0)], [cue]).cues[0].rows, [1]);
});

test("a row is divided at the caret, and its words keep their times", () => {
  const after = model.divided(talk(), 1, 12);
  assert.deepEqual(texts(after).slice(0, 2), ["Mr Kowalsky", "sees me."]);
  assert.deepEqual(times(after.rows[1]), [["sees", 2, 3], ["me.", 3, 4]]);
  assert.deepEqual([after.rows[0].end, after.rows[1].start], [2, 2]);
  assert.deepEqual(after.cues[0].rows, [1, 4], "both translate the sentence");
  assert.equal(model.divided(talk(), 1, 0).rows.length, 3, "an empty part is no row");
  assert.deepEqual(texts(model.joined(after, 1)), texts(talk()));
});

test("rows of two sentences are joined with their translations", () => {
  const after = model.joined(talk(), 1);
  assert.deepEqual(texts(after), ["Mr Kowalsky sees me. I know", "Kowalsky well."]);
  assert.deepEqual(after.cues.map((cue) => cue.text), ["Herr Kowalsky sieht mich. Ich kenne Kowalsky gut."]);
  assert.deepEqual(after.cues[0].rows, [1, 3]);
  assert.deepEqual(model.outdated(after), []);
  assert.equal(model.tokensIn(after.rows[0])[4].at, 21);
  const last = talk();
  assert.equal(model.joined(last, 3), last);
});

test("times are moved up to the neighbors", () => {
  const free = model.fromRecord([segment("one two", 0), { ...segment("three four", 2.05), end: 4 }], []);
  const end = (by) => model.nudged(free, 1, "end", by).rows[0].end;
  assert.deepEqual([end(0.1), end(-0.1), end(-9)], [2.05, 1.9, 0.1]);
  const after = model.nudged(free, 2, "start", 1);
  assert.deepEqual([after.rows[1].start, model.tokensIn(after.rows[1])[0].start], [3.05, 3.05]);
  assert.equal(model.nudged(free, 1, "start", -1), free, "not before the beginning");
  assert.equal(model.nudged(free, 2, "end", 5).rows[1].end, 9, "nothing follows");
});

test("the least certain words come first; a person's are certain", () => {
  const transcript = model.fromRecord(
    [{ start: 0, end: 3, text: " so it – goes", words: [...spoken("so", 0, 1, 0.4), ...spoken("it", 1, 1, 0.2), ...spoken("–", 2, 0.5, 0.1), ...spoken("goes", 2.5, 0.5, 0.8)] }],
    [],
  );
  assert.deepEqual(model.doubts(transcript, 0.5).map((each) => each.index), [1, 0], "a dash is no word");
  const after = model.accepted(transcript, 1, 1);
  assert.deepEqual(model.doubts(after, 0.5).map((each) => each.index), [0]);
  assert.equal(model.toMessage(after).cues[0].words[1].probability, 1, "and it is stored");
});

test("a row that was not edited is stored as it was recognized", () => {
  const message = model.toMessage(model.withText(talk(), 2, "We know "));
  assert.deepEqual(message.cues[0], segment("Mr Kowalsky sees me.", 0));
  assert.equal(message.cues[1].text, " We know");
  assert.equal(message.cues[1].words.length, 2);
  assert.equal("tokens" in message.cues[1], false);
  assert.deepEqual(message.translation[1], { start: 4, end: 8, text: "Ich kenne Kowalsky gut." });
});

test("the row at a time", () => {
  assert.deepEqual([-1, 0, 3.9, 4, 99].map((time) => model.rowAt(talk(), time)), [-1, 0, 0, 1, 2]);
});

test("search ignores case and diacritics, and knows where it found", () => {
  assert.deepEqual(occurrencesIn("Das Café, CAFE", fold("café").text), [{ start: 4, end: 8 }, { start: 10, end: 14 }]);
  assert.deepEqual(occurrencesIn("ﬁn de ﬁ", fold("fi").text), [{ start: 0, end: 1 }, { start: 6, end: 7 }]);
  assert.deepEqual(occurrencesIn("anything", " "), []);
});

test("undo goes back a step, and letters of a word are one", () => {
  const stack = new UndoStack("");
  for (const text of ["a", "ab", "abc"]) stack.push(text, "text 1");
  stack.pause();
  stack.push("abcd", "text 1");
  stack.amend("abcd, translated");
  assert.ok(stack.undo());
  assert.equal(stack.value, "abc");
  assert.ok(stack.undo());
  assert.equal(stack.value, "");
  assert.equal(stack.undo(), false);
  assert.ok(stack.redo());
  assert.ok(stack.redo());
  assert.equal(stack.value, "abcd, translated");
  stack.undo();
  stack.push("new");
  assert.equal(stack.redo(), false);
});

test("a transcript of many hours is opened at once", () => {
  const rows = Array.from({ length: 3000 }, (_, i) => segment("one two three four five six seven", i * 7));
  const cues = rows.map(({ start, end }) => ({ start, end, text: "eins" }));
  const transcript = model.fromRecord(rows, cues);
  assert.equal(transcript.rows.length, 3000);
  assert.ok(transcript.cues.every((cue, i) => cue.rows.length === 1 && cue.rows[0] === i + 1));
});

test("rows and their translations keep their speakers", () => {
  const said = (text, start, speaker) => ({ start, end: start + 2, text: ` ${text}`, speaker });
  const cues = [said("Can you hear me?", 0, "Me"), said("Yes.", 1, "Them"), said("Good.", 3, "Me")];
  const translation = [
    { start: 1, end: 3, text: "Ja.", speaker: "Them" },
    { start: 0, end: 2, text: "Hören Sie mich?", speaker: "Me" },
    { start: 3, end: 5, text: "Gut.", speaker: "Me" },
  ];
  const transcript = model.fromRecord(cues, translation);
  assert.deepEqual(transcript.rows.map((row) => row.speaker), ["Me", "Them", "Me"]);
  assert.deepEqual(transcript.cues.map((cue) => cue.rows), [[2], [1], [3]]);
  const edited = model.withText(transcript, 2, "Yes, I do.");
  const message = model.toMessage(model.divided(edited, 2, 4));
  assert.deepEqual(message.cues.map(({ text, speaker }) => [text.trim(), speaker]), [
    ["Can you hear me?", "Me"], ["Yes,", "Them"], ["I do.", "Them"], ["Good.", "Me"],
  ]);
  assert.deepEqual(message.translation.map(({ speaker }) => speaker), ["Them", "Me", "Me"]);
  assert.ok(!("speaker" in model.toMessage(talk()).cues[0]));
});

test("doubts of a translation outlive corrections of other words", () => {
  const doubts = (transcript) => transcript.cues.map((cue) => cue.doubts.map(([from, to]) => cue.text.slice(from, to)));
  const marked = (transcript) => {
    const { cues, translation } = model.toMessage(transcript);
    return model.fromRecord(cues, [{ ...translation[0], doubts: [[5, 13], [20, 24]] }, { ...translation[1], doubts: [[4, 9]] }]);
  };
  const before = marked(talk());
  assert.deepEqual(doubts(before), [["Kowalsky", "mich"], ["kenne"]]);
  assert.deepEqual(model.toMessage(before).translation[1].doubts, [[4, 9]]);
  assert.ok(!("doubts" in model.toMessage(talk()).translation[0]));
  const edited = (text) => doubts(model.withCueText(before, 0, text))[0];
  assert.deepEqual(edited("Herr Kowalsky hört mich."), ["Kowalsky", "mich"]);
  assert.deepEqual(edited("Herr Kowalsky sieht dich."), ["Kowalsky"]);
  assert.deepEqual(edited("Der Herr Kowalskys sieht mich."), ["mich"], "a part of another word");
  assert.deepEqual(edited("Herr Kowalsky sieht mich gut."), ["Kowalsky", "mich"]);
  assert.deepEqual(edited(""), []);
  assert.deepEqual(doubts(model.joined(before, 1)), [["Kowalsky", "mich", "kenne"]]);
});

test("doubts stay at their words when the space around a text goes", () => {
  const words = ({ text, doubts }) => doubts.map(([from, to]) => text.slice(from, to));
  const record = [{ start: 0, end: 1, text: " A b" }, { start: 1, end: 2, text: " C d" }];
  const translated = [{ start: 0, end: 1, text: " eins ", doubts: [[1, 5]] }, { start: 1, end: 2, text: "zwei", doubts: [[0, 4]] }];
  const opened = model.fromRecord(record, translated);
  assert.deepEqual(words(opened.cues[0]), ["eins"]);
  const typed = model.withCueText(opened, 0, "  eins");
  assert.deepEqual(words(model.toMessage(typed).translation[0]), ["eins"]);
  const [both] = model.joined(typed, 1).cues;
  assert.deepEqual([both.text, words(both)], ["eins zwei", ["eins", "zwei"]]);
  const [second] = model.joined(model.withCueText(opened, 0, " "), 1).cues;
  assert.deepEqual([second.text, words(second)], ["zwei", ["zwei"]]);
});

/** What a server stores after these messages. */
function stored(before, messages) {
  const rows = { cues: [...before.cues], translation: [...before.translation] };
  for (const { counts, changes } of messages) {
    assert.deepEqual(counts, [rows.cues.length, rows.translation.length]);
    for (const { translated, at, removed, rows: put } of changes) {
      (translated ? rows.translation : rows.cues).splice(at, removed, ...put.map((row) => JSON.stringify(row)));
    }
  }
  return rows;
}

test("of ten hours, only what was corrected is sent, in messages that the server reads", () => {
  const ten = { cues: [], translation: [] };
  for (let start = 0; start < 36000; start += 4) {
    ten.cues.push(segment("One sentence of very many words.", start));
    ten.translation.push({ start, end: start + 4, text: "Ein Satz von sehr vielen Wörtern." });
  }
  const before = storedRows(ten);
  assert.ok(JSON.stringify(before).length > 4e6);
  const with_ = (change) => {
    const texts = { cues: [...ten.cues], translation: [...ten.translation] };
    change(texts);
    return storedRows(texts);
  };
  const changes = {
    two: ({ cues, translation }) => {
      cues[9] = { ...cues[9], text: " Corrected." };
      translation[8000] = { ...translation[8000], text: "Verbessert." };
    },
    emptied: ({ cues }) => (cues[5] = { ...cues[5], text: "  " }),
    divided: ({ cues }) => cues.splice(100, 1, segment("One sentence", 300), segment("of very many words.", 302)),
    joined: ({ cues, translation }) => {
      cues.splice(100, 2, segment("One sentence of very many words. One more.", 300));
      translation.splice(0, 8000);
    },
    all: ({ cues }) => cues.forEach((cue, i) => (cues[i] = { ...cue, text: cue.text.replace("many", "few") })),
    fewer: ({ cues }) => cues.splice(0, 8000, ...cues.slice(0, 5000).map((cue) => ({ ...cue, text: " x" }))),
  };
  for (const [name, change] of Object.entries(changes)) {
    const after = with_(change);
    const messages = messagesBetween(before, after);
    assert.deepEqual(stored(before, messages), after, name);
    assert.ok(messages.every((message) => JSON.stringify(message).length < 1e6), name);
    const small = ["two", "emptied", "divided", "joined"].includes(name);
    if (small) assert.ok(JSON.stringify(messages).length < 4000, name);
  }
  assert.deepEqual(messagesBetween(before, before), []);
});

test("rows are compared as they are stored", () => {
  const cue = { start: 0, end: 1, text: " Hi.", words: [{ word: " Hi.", start: 0.123456, end: 1, probability: 0.98765 }] };
  const kept = { start: 0, end: 1, text: " Hi.", words: [{ word: " Hi.", start: 0.12, end: 1, probability: 0.988 }] };
  const rows = storedRows({ cues: [cue, { start: 1, end: 2, text: " " }], translation: [{ start: 0, end: 1, text: "Ja.", doubts: [] }] });
  assert.deepEqual(rows, storedRows({ cues: [{ ...kept, tokens: [1], speaker: "" }], translation: [{ start: 0, end: 1, text: "Ja." }] }));
});

test("a row that is divided while another speaker talks stays before what is said later", () => {
  const row = (start, end, text, speaker) => ({ start, end, text, ...(speaker && { speaker }) });
  const divided = [row(0, 5, "One"), row(5, 9, "two."), row(3, 6, "Yes.")];
  const texts = (rows) => rows.map((each) => JSON.parse(each).text);
  const speakers = ["Ann", "Ann", "Ben"];
  const cues = divided.map((each, i) => ({ ...each, speaker: speakers[i] }));
  const kept = storedRows({ cues, translation: divided });
  assert.deepEqual(texts(kept.cues), ["One", "Yes.", "two."], "as the server sorts them");
  assert.deepEqual(texts(kept.translation), ["One", "two.", "Yes."]);
  const after = storedRows({ cues: cues.with(2, { ...cues[2], text: "No." }), translation: divided });
  const [{ changes }] = messagesBetween(kept, after);
  assert.deepEqual(changes.map(({ at, removed }) => [at, removed]), [[1, 1]]);
});
