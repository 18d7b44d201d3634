// @ts-check
// The rows of a transcript that differ from those that are stored, as messages of bounded length.

const MOST = 500_000; // characters of rows in a message; the server closes a line for one of 4 MB

/** @typedef {{cues: object[], translation: object[]}} Texts */
/** @typedef {{cues: string[], translation: string[]}} Stored each row as JSON, numbers as they are stored */
/** @typedef {{translated: boolean, at: number, removed: number, rows: object[]}} Change */
/** @typedef {{counts: number[] | null, changes: Change[]}} Message counts: of the rows of both before it */

/** @param {number} value @param {number} scale */
const rounded = (value, scale) => Math.round(value * scale) / scale;

/** The rows that have text, in the order in which the server has them: where speakers are known, that of
 * their beginnings. @param {any[]} rows */
function inOrder(rows) {
  const own = rows.filter((row) => row.text.trim());
  return own.some((row) => row.speaker) ? own.sort((a, b) => a.start - b.start) : own;
}

/** The rows that have text, as they are stored. @param {Texts} texts @returns {Stored} */
export function storedRows({ cues, translation }) {
  const spoken = (/** @type {any} */ { start, end, text, words, speaker }) => {
    const timed = words?.map((/** @type {any} */ word) => ({
      word: word.word,
      start: rounded(word.start, 100),
      end: rounded(word.end, 100),
      probability: rounded(word.probability, 1000),
    }));
    return JSON.stringify({ start, end, text, words: timed?.length ? timed : undefined, speaker: speaker || undefined });
  };
  const meant = (/** @type {any} */ { start, end, text, doubts, speaker }) =>
    JSON.stringify({ start, end, text, doubts: doubts?.length ? doubts : undefined, speaker: speaker || undefined });
  return { cues: inOrder(cues).map(spoken), translation: inOrder(translation).map(meant) };
}

/** Messages which, one after the other, make `before` into `after`.
 * @param {Stored} before @param {Stored} after @returns {Message[]} */
export function messagesBetween(before, after) {
  const counts = [before.cues.length, before.translation.length];
  /** @type {Message[]} */
  const messages = [];
  let room = 0;
  for (const index of [0, 1]) {
    const translated = index === 1;
    const [old, wanted] = translated ? [before.translation, after.translation] : [before.cues, after.cues];
    for (const { at, removed, rows } of differences(old, wanted)) {
      for (const piece of pieces(at, removed, rows)) {
        const length = piece.rows.reduce((sum, row) => sum + row.length, 0);
        if (!messages.length || room < length) {
          messages.push({ counts: [...counts], changes: [] });
          room = MOST;
        }
        room -= length + 100;
        messages[messages.length - 1].changes.push({ translated, ...piece, rows: piece.rows.map((row) => JSON.parse(row)) });
        counts[index] += piece.rows.length - piece.removed;
      }
    }
  }
  return messages;
}

/** @param {string[]} before @param {string[]} after @returns {{at: number, removed: number, rows: string[]}[]} */
function differences(before, after) {
  const found = [];
  if (before.length === after.length) {
    for (let at = 0; at < after.length; at++) {
      if (before[at] === after[at]) continue;
      let end = at + 1;
      while (end < after.length && before[end] !== after[end]) end++;
      found.push({ at, removed: end - at, rows: after.slice(at, end) });
      at = end;
    }
    return found;
  }
  const shorter = Math.min(before.length, after.length);
  let at = 0;
  while (at < shorter && before[at] === after[at]) at++;
  let same = 0; // at the end
  while (same < shorter - at && before[before.length - 1 - same] === after[after.length - 1 - same]) same++;
  return [{ at, removed: before.length - at - same, rows: after.slice(at, after.length - same) }];
}

/** A change in parts that fit into a message. @param {number} at @param {number} removed @param {string[]} rows */
function* pieces(at, removed, rows) {
  let [from, length] = [0, 0];
  for (let index = 0; index < rows.length; index++) {
    if (index > from && length + rows[index].length > MOST) {
      const gone = Math.min(removed, index - from);
      yield { at, removed: gone, rows: rows.slice(from, index) };
      [at, removed, from, length] = [at + index - from, removed - gone, index, 0];
    }
    length += rows[index].length;
  }
  yield { at, removed, rows: rows.slice(from) };
}
