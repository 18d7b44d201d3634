// @ts-check
// A transcript that is edited: rows of speech, and the sentences of its translation. Values are never
// changed in place, so that an earlier one can be put back.

import { keptSpans, retime, tokensOf, wordsOf } from "./words.js";
import { fold, occurrencesIn } from "./search.js";

/** @typedef {import("./words.js").Token} Token */
/** @typedef {import("./words.js").Word} Word */
/** @typedef {import("./words.js").Span} Span */

/**
 * @typedef {object} Segment a segment, or a cue of the translation
 * @property {number} start seconds
 * @property {number} end seconds
 * @property {string} text
 * @property {Word[]} [words] of a segment
 * @property {Span[]} [doubts] of a cue: its words of which the model is in doubt
 * @property {string} [speaker]
 */

/**
 * @typedef {object} Row
 * @property {number} id
 * @property {number} start seconds
 * @property {number} end seconds
 * @property {string} text as shown
 * @property {string} speaker the name of who says it; "" where that is not known
 * @property {Word[]} words as recognized or corrected; empty where their times are not known
 * @property {Segment | null} segment as recognized, with all its fields; null once it was edited
 */

/**
 * @typedef {object} Cue a sentence of the translation
 * @property {number[]} rows the ids of the rows that it translates; it is shown beside the first
 * @property {number} start seconds, where there are no such rows
 * @property {number} end seconds
 * @property {string} text
 * @property {string} source what it translates
 * @property {boolean} edited a person has corrected it
 * @property {Span[]} doubts words of the text of which the model is in doubt
 * @property {string} speaker as of its rows
 */

/** @typedef {{rows: Row[], cues: Cue[], lastId: number}} Transcript */

const SHORTEST_S = 0.1;
const NEAR_S = 0.01;

/** @type {Transcript} */
export const EMPTY = { rows: [], cues: [], lastId: 0 };

/** @type {WeakMap<Row, Token[]>} */
const computed = new WeakMap();

/** The words of a row with their offsets in its text. Computed when they are needed: a long transcript
 * has tens of thousands. @param {Row} row */
export function tokensIn(row) {
  const known = computed.get(row);
  if (known) return known;
  const tokens = tokensOf(row.text, row.words, row.start, row.end);
  computed.set(row, tokens);
  return tokens;
}

/** @param {Transcript} transcript @param {number} id */
const indexOf = (transcript, id) => transcript.rows.findIndex((row) => row.id === id);

/**
 * @param {Transcript} transcript
 * @param {number} index
 * @param {Row[]} rows in place of the row at the index
 * @param {number} [count] of rows that are replaced
 * @returns {Transcript}
 */
function replaced(transcript, index, rows, count = 1) {
  const all = transcript.rows.slice();
  all.splice(index, count, ...rows);
  return { ...transcript, rows: all };
}

/**
 * Add a recognized segment.
 * @param {Transcript} transcript
 * @param {Segment} segment
 * @returns {Transcript}
 */
export function withSegment(transcript, segment) {
  const row = rowOf(segment, transcript.lastId + 1);
  return row ? { ...transcript, lastId: row.id, rows: [...transcript.rows, row] } : transcript;
}

/** @param {Segment} segment @param {number} id @returns {Row | null} null without text */
function rowOf(segment, id) {
  const { start, end, words = [], speaker = "" } = segment;
  const text = segment.text.trim();
  return text ? { id, start, end, text, speaker, words, segment } : null;
}

/**
 * Add a sentence of the translation. It belongs to the rows that begin in its time.
 * @param {Transcript} transcript
 * @param {Segment} cue
 * @returns {Transcript}
 */
export function withCue(transcript, cue) {
  const { rows } = transcript;
  const from = Math.max(0, rows.findLastIndex((row) => row.start <= cue.start + NEAR_S));
  return { ...transcript, cues: [...transcript.cues, cueOf(cue, rows.slice(from))] };
}

/**
 * @param {Segment} cue
 * @param {Row[]} rows from the last one that begins before it; one of them at least is its own
 * @returns {Cue}
 */
function cueOf({ start, end, text, doubts = [], speaker = "" }, rows) {
  let own = rows.filter((row) => row.start >= start - NEAR_S && row.start < end - NEAR_S);
  if (!own.length) own = rows.slice(0, 1);
  const source = own.map((row) => row.text).join(" ");
  return { rows: own.map((row) => row.id), start, end, ...trimmed({ text, doubts }), edited: false, source, speaker };
}

/** A text without the space around it, its doubts at the same words. @param {{text: string, doubts: Span[]}} cue */
function trimmed({ text, doubts }) {
  const by = text.length - text.trimStart().length;
  return { text: text.trim(), doubts: doubts.map(([from, to]) => /** @type {Span} */ ([from - by, to - by])) };
}

/**
 * The transcript of a record.
 * @param {Segment[]} segments
 * @param {Segment[]} translation
 */
export function fromRecord(segments, translation) {
  /** @type {Row[]} */
  const rows = [];
  for (const segment of segments) {
    const row = rowOf(segment, rows.length + 1);
    if (row) rows.push(row);
  }
  /** @type {Map<string, Row[]>} */
  const own = new Map();
  for (const row of rows) {
    const said = own.get(row.speaker);
    if (said) said.push(row);
    else own.set(row.speaker, [row]);
  }
  /** @type {Map<string, number>} */
  const begun = new Map();
  const cues = translation.map((cue) => {
    const said = own.get(cue.speaker ?? "") ?? rows;
    // The rows of each cue lie close together: searching all of them for each would take long.
    let from = begun.get(cue.speaker ?? "") ?? 0;
    while (from + 1 < said.length && said[from + 1].start <= cue.start + NEAR_S) from++;
    begun.set(cue.speaker ?? "", from);
    let to = from + 1;
    while (to < said.length && said[to].start < cue.end - NEAR_S) to++;
    return cueOf(cue, said.slice(from, to));
  });
  return { rows, cues, lastId: rows.length };
}

/**
 * @param {Transcript} transcript
 * @param {number} id
 * @param {string} text
 * @returns {Transcript}
 */
export function withText(transcript, id, text) {
  const index = indexOf(transcript, id);
  const row = transcript.rows[index];
  return !row || row.text === text ? transcript : replaced(transcript, index, [corrected(row, text)]);
}

/** @param {Row} row @param {string} text @returns {Row} */
function corrected(row, text) {
  const words = wordsOf(text, retime(tokensIn(row), text, row.start, row.end));
  return { ...row, text, words, segment: null };
}

/**
 * @param {Transcript} transcript
 * @param {number} index of the cue
 * @param {Partial<Cue>} values
 * @returns {Transcript}
 */
export function withCueValues(transcript, index, values) {
  const cues = transcript.cues.slice();
  cues[index] = { ...cues[index], ...values };
  return { ...transcript, cues };
}

/**
 * A correction of a sentence of the translation.
 * @param {Transcript} transcript
 * @param {number} index of the cue
 * @param {string} text
 * @returns {Transcript}
 */
export function withCueText(transcript, index, text) {
  const { text: before, doubts } = transcript.cues[index];
  return withCueValues(transcript, index, { text, edited: true, doubts: keptSpans(before, text, doubts) });
}

/**
 * Divide a row at an offset of its text.
 * @param {Transcript} transcript
 * @param {number} id
 * @param {number} offset
 * @returns {Transcript} the same one if a part would be empty
 */
export function divided(transcript, id, offset) {
  const index = indexOf(transcript, id);
  const row = transcript.rows[index];
  if (!row) return transcript;
  const [left, right] = [row.text.slice(0, offset).trim(), row.text.slice(offset).trim()];
  if (!left || !right) return transcript;
  const all = tokensIn(row);
  const next = all.find((token) => token.at + token.text.length > offset);
  const previous = all.findLast((token) => token.at < offset);
  const from = next?.start ?? row.end;
  const to = Math.min(previous?.end ?? from, from);
  const newId = transcript.lastId + 1;
  const part = (/** @type {string} */ text, /** @type {Token[]} */ tokens, /** @type {number} */ start, /** @type {number} */ end) =>
    ({ ...row, start, end, text, words: wordsOf(text, retime(tokens, text, start, end)), segment: null });
  const parts = [
    part(left, all.filter((token) => token.at < offset), row.start, to),
    { ...part(right, all.filter((token) => token.at >= offset), from, row.end), id: newId },
  ];
  const cues = transcript.cues.map((cue) => {
    const at = cue.rows.indexOf(id);
    return at < 0 ? cue : { ...cue, rows: cue.rows.toSpliced(at + 1, 0, newId) };
  });
  return { ...replaced(transcript, index, parts), cues, lastId: newId };
}

/**
 * Join a row with the next one, and their translations.
 * @param {Transcript} transcript
 * @param {number} id
 * @returns {Transcript} the same one if there is no next row
 */
export function joined(transcript, id) {
  const index = indexOf(transcript, id);
  const [row, next] = transcript.rows.slice(index, index + 2);
  if (index < 0 || !next) return transcript;
  const text = `${row.text} ${next.text}`;
  const words = [row, next].flatMap((each) => wordsOf(each.text, tokensIn(each)));
  const both = { ...row, end: Math.max(row.end, next.end), text, words, segment: null };
  /** @type {Cue[]} */
  const cues = [];
  for (const cue of transcript.cues) {
    const rows = [...new Set(cue.rows.map((each) => (each === next.id ? id : each)))];
    const last = cues.at(-1);
    // Sentences that begin or end in the joined row become one, so that each row has one at most.
    if (last && last.rows.at(-1) === id && rows[0] === id) {
      const [left, right] = [trimmed(last), trimmed(cue)];
      const by = left.text ? left.text.length + 1 : 0;
      cues[cues.length - 1] = {
        ...last,
        rows: [...new Set([...last.rows, ...rows])],
        end: cue.end,
        text: `${left.text} ${right.text}`.trim(),
        source: `${last.source} ${cue.source}`.trim(),
        edited: last.edited || cue.edited,
        doubts: [...left.doubts, ...right.doubts.map(([from, to]) => /** @type {Span} */ ([from + by, to + by]))],
      };
    } else cues.push({ ...cue, rows });
  }
  return { ...replaced(transcript, index, [both], 2), cues };
}

/**
 * Move the start or the end of a row, up to its neighbors.
 * @param {Transcript} transcript
 * @param {number} id
 * @param {"start" | "end"} edge
 * @param {number} by seconds
 * @returns {Transcript}
 */
export function nudged(transcript, id, edge, by) {
  const index = indexOf(transcript, id);
  const row = transcript.rows[index];
  if (!row) return transcript;
  const earliest = edge === "start" ? (transcript.rows[index - 1]?.end ?? 0) : row.start + SHORTEST_S;
  const latest = edge === "end" ? (transcript.rows[index + 1]?.start ?? Infinity) : row.end - SHORTEST_S;
  const time = Math.round(Math.min(Math.max(row[edge] + by, Math.min(earliest, row[edge])), Math.max(latest, row[edge])) * 1000) / 1000;
  if (time === row[edge]) return transcript;
  const moved = { ...row, [edge]: time, segment: null };
  const within = (/** @type {number} */ seconds) => Math.min(Math.max(seconds, moved.start), moved.end);
  moved.words = row.words.map((word) => ({ ...word, start: within(word.start), end: within(word.end) }));
  return replaced(transcript, index, [moved]);
}

/**
 * Replace passages of the rows, row by row: in a long transcript, a caller pauses between them.
 * @param {Transcript} transcript
 * @param {{id: number, start: number, end: number}[]} places in the order of the text
 * @param {string} text
 * @returns {Generator<void, Transcript, void>}
 */
export function* replacing(transcript, places, text) {
  /** @type {Map<number, {start: number, end: number}[]>} */
  const byRow = new Map();
  for (const place of places) byRow.set(place.id, [...(byRow.get(place.id) ?? []), place]);
  const rows = transcript.rows.slice();
  for (const [i, row] of rows.entries()) {
    const own = byRow.get(row.id);
    if (!own) continue;
    let changed = row.text;
    for (const { start, end } of own.toReversed()) changed = changed.slice(0, start) + text + changed.slice(end);
    rows[i] = corrected(row, changed.replace(/\s+/g, " ").trim());
    tokensIn(rows[i]); // they are needed when it is shown
    yield;
  }
  return { ...transcript, rows };
}

/**
 * As `replacing`, at once.
 * @param {Transcript} transcript
 * @param {{id: number, start: number, end: number}[]} places
 * @param {string} text
 * @returns {Transcript}
 */
export function withReplaced(transcript, places, text) {
  const work = replacing(transcript, places, text);
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}

/**
 * Where rows contain a text; case and diacritics are ignored.
 * @param {Transcript} transcript
 * @param {string} query
 * @returns {{id: number, start: number, end: number}[]}
 */
export function occurrences(transcript, query) {
  const sought = fold(query).text;
  return transcript.rows.flatMap(({ id, text }) => occurrencesIn(text, sought).map((place) => ({ id, ...place })));
}

/**
 * Where rows contain words exactly as they are spelled, and not as a part of other words.
 * @param {Transcript} transcript
 * @param {string} words
 * @returns {{id: number, start: number, end: number}[]}
 */
export function exactOccurrences(transcript, words) {
  const places = [];
  for (const { id, text } of transcript.rows) {
    for (let start = text.indexOf(words); start >= 0; start = text.indexOf(words, start + 1)) {
      const end = start + words.length;
      const beside = (text[start - 1] ?? " ") + (text[end] ?? " ");
      if (!/[\p{L}\p{N}]/u.test(beside)) places.push({ id, start, end });
    }
  }
  return places;
}

/**
 * The words of which the model is in doubt, the least certain first.
 * @param {Transcript} transcript
 * @param {number} below which probability
 * @returns {{id: number, index: number, probability: number}[]}
 */
export function doubts(transcript, below) {
  /** @type {{id: number, index: number, probability: number}[]} */
  const found = [];
  for (const row of transcript.rows) {
    if (!row.words.some((word) => word.probability < below)) continue;
    tokensIn(row).forEach(({ probability, text }, index) => {
      if (probability < below && /[\p{L}\p{N}]/u.test(text)) found.push({ id: row.id, index, probability });
    });
  }
  return found.sort((a, b) => a.probability - b.probability);
}

/**
 * A word that a person has found to be right.
 * @param {Transcript} transcript
 * @param {number} id
 * @param {number} index of the word in the row
 * @returns {Transcript}
 */
export function accepted(transcript, id, index) {
  const at = indexOf(transcript, id);
  const row = transcript.rows[at];
  if (!row) return transcript;
  const tokens = tokensIn(row).map((token, i) => (i === index ? { ...token, probability: 1 } : token));
  const words = wordsOf(row.text, tokens);
  return replaced(transcript, at, [{ ...row, words, segment: row.segment && { ...row.segment, words } }]);
}

/**
 * What a cue translates now.
 * @param {Transcript} transcript
 * @param {Cue} cue
 */
export function sourceOf(transcript, cue) {
  const own = new Set(cue.rows);
  return transcript.rows.filter((row) => own.has(row.id)).map((row) => row.text).join(" ");
}

/**
 * The sentences whose text has changed since they were translated; not those that a person has
 * corrected.
 * @param {Transcript} transcript
 * @returns {{index: number, source: string}[]}
 */
export function outdated(transcript) {
  const texts = new Map(transcript.rows.map((row) => [row.id, row.text]));
  return transcript.cues.flatMap((cue, index) => {
    const source = cue.rows.flatMap((id) => texts.get(id) ?? []).join(" ");
    return source === cue.source || cue.edited ? [] : [{ index, source }];
  });
}

/**
 * The row that is spoken at a time; -1 before the first.
 * @param {Transcript} transcript
 * @param {number} time seconds
 */
export function rowAt(transcript, time) {
  let [low, high] = [0, transcript.rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (transcript.rows[middle].start <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * For exports and the history. A row that was not edited keeps all fields of its segment.
 * @param {Transcript} transcript
 * @returns {{cues: Segment[], translation: Segment[]}}
 */
export function toMessage({ rows, cues }) {
  const byId = new Map(rows.map((row) => [row.id, row]));
  return {
    cues: rows.map(
      ({ segment, start, end, text, words, speaker }) =>
        segment ?? { start, end, text: text.trim() && ` ${text.trim()}`, words, ...(speaker && { speaker }) },
    ),
    translation: cues.map((cue) => {
      const [first, last] = [byId.get(cue.rows[0]), byId.get(cue.rows[cue.rows.length - 1])];
      const times = { start: first?.start ?? cue.start, end: Math.max(last?.end ?? cue.end, first?.start ?? 0) };
      const { speaker } = cue;
      const { text, doubts } = trimmed(cue);
      return { ...times, text, ...(doubts.length && { doubts }), ...(speaker && { speaker }) };
    }),
  };
}
