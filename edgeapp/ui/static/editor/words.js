// @ts-check
// The words of a row with their times: where they are in the text, and what an edit leaves of them.

/**
 * A word of a row.
 * @typedef {object} Token
 * @property {string} text
 * @property {number} at offset in the row's text
 * @property {number} start seconds
 * @property {number} end seconds
 * @property {number} probability that it was recognized correctly; 1 if a person typed it
 */

/** @typedef {{word: string, start: number, end: number, probability: number}} Word as stored */
/** @typedef {[number, number]} Span from an offset to another one */

// In Chinese and Japanese, which are written without spaces, each character is a word.
const WIDE = "\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60";
const WORDS = new RegExp(`[${WIDE}]|[^\\s${WIDE}]+`, "gu");
const EDGES = /^[\p{P}\p{S}]+|[\p{P}\p{S}]+$/gu;

/** A word without the punctuation around it. @param {string} text */
export const bare = (text) => text.replace(EDGES, "") || text;

/** The words of a text with their offsets. @param {string} text */
function split(text) {
  return [...text.matchAll(WORDS)].map((match) => ({ text: match[0], at: match.index }));
}

/**
 * Words that share a time by their length.
 * @param {{text: string, at: number}[]} parts
 * @param {number} start seconds
 * @param {number} end seconds
 * @param {number} probability
 * @returns {Token[]}
 */
function spread(parts, start, end, probability) {
  const total = parts.reduce((sum, part) => sum + part.text.length, 0);
  const length = Math.max(0, end - start);
  let before = 0;
  return parts.map((part) => {
    const from = start + (length * before) / total;
    before += part.text.length;
    return { ...part, start: from, end: start + (length * before) / total, probability };
  });
}

/**
 * The words of a row.
 * @param {string} text of the row
 * @param {Word[]} words as recognized; without them, the words share the row's time
 * @param {number} start of the row, in seconds
 * @param {number} end of the row, in seconds
 * @returns {Token[]}
 */
export function tokensOf(text, words, start, end) {
  const timed = words.flatMap((word) => spread(split(word.word), word.start, word.end, word.probability));
  return retime(timed, text, start, end);
}

/**
 * The words of an edited text. Those that stay keep their times; new ones share the time of those
 * that they replace.
 * @param {Token[]} before
 * @param {string} text
 * @param {number} start of the row, in seconds
 * @param {number} end of the row, in seconds
 * @returns {Token[]}
 */
export function retime(before, text, start, end) {
  const parts = split(text);
  const kept = commonWords(before.map((token) => token.text), parts.map((part) => part.text));
  /** @type {Token[]} */
  const after = [];
  let old = 0;
  for (const [i, j] of [...kept, [before.length, parts.length]]) {
    const added = parts.slice(after.length, j);
    if (added.length) {
      const replaced = before.slice(old, i);
      const from = replaced[0]?.start ?? after.at(-1)?.end ?? start;
      const to = replaced.at(-1)?.end ?? before[i]?.start ?? end;
      after.push(...spread(added, from, Math.max(from, to), 1));
    }
    if (i < before.length) after.push({ ...before[i], at: parts[j].at });
    old = i + 1;
  }
  return after;
}

/**
 * Pairs of indices of the words that both lists have in the same order.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {[number, number][]}
 */
export function commonWords(before, after) {
  let first = 0;
  while (first < before.length && first < after.length && before[first] === after[first]) first++;
  let last = 0;
  const most = Math.min(before.length, after.length) - first;
  while (last < most && before[before.length - 1 - last] === after[after.length - 1 - last]) last++;
  const a = before.slice(first, before.length - last);
  const b = after.slice(first, after.length - last);
  // lengths[i][j]: of the longest common subsequence of a[i:] and b[j:]
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  /** @type {[number, number][]} */
  const pairs = Array.from({ length: first }, (_, i) => [i, i]);
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) pairs.push([first + i++, first + j++]);
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  for (let k = last; k > 0; k--) pairs.push([before.length - k, after.length - k]);
  return pairs;
}

/**
 * The spans of a text that an edit leaves as they are, in the new text.
 * @param {string} before
 * @param {string} after
 * @param {Span[]} spans of the text before
 * @returns {Span[]}
 */
export function keptSpans(before, after, spans) {
  let first = 0;
  while (first < before.length && first < after.length && before[first] === after[first]) first++;
  let last = 0;
  const most = Math.min(before.length, after.length) - first;
  while (last < most && before[before.length - 1 - last] === after[after.length - 1 - last]) last++;
  const [from, by] = [before.length - last, after.length - before.length];
  const letterAt = (/** @type {number} */ at) => /[\p{L}\p{N}]/u.test(after[at] ?? "");
  // A word beside the edit may have become a part of another one.
  const left = spans.filter(([, end]) => end < first || (end === first && !letterAt(end)));
  const right = spans.filter(([start]) => start > from || (start === from && !letterAt(start + by - 1)));
  return [...left, ...right.map(([start, end]) => /** @type {Span} */ ([start + by, end + by]))];
}

/**
 * What was corrected, if it is one passage of up to three words.
 * @param {string} before
 * @param {string} after
 * @returns {{from: string, to: string} | null} without the punctuation around them
 */
export function correction(before, after) {
  const [a, b] = [split(before), split(after)];
  const words = [a.map((part) => part.text), b.map((part) => part.text)];
  let first = 0;
  while (first < a.length && first < b.length && words[0][first] === words[1][first]) first++;
  let last = 0;
  const most = Math.min(a.length, b.length) - first;
  while (last < most && words[0].at(-1 - last) === words[1].at(-1 - last)) last++;
  const [gone, come] = [a.slice(first, a.length - last), b.slice(first, b.length - last)];
  if (!gone.length || !come.length || gone.length > 3 || come.length > 3) return null;
  const passage = (/** @type {string} */ text, /** @type {typeof a} */ parts) =>
    bare(text.slice(parts[0].at, parts[parts.length - 1].at + parts[parts.length - 1].text.length));
  const [from, to] = [passage(before, gone), passage(after, come)];
  return from === to ? null : { from, to };
}

/**
 * The index of the word at an offset: the last one that begins at or before it; -1 without words.
 * @param {Token[]} tokens
 * @param {number} offset
 */
export function wordAt(tokens, offset) {
  const found = tokens.findLastIndex((token) => token.at <= offset);
  return found < 0 && tokens.length ? 0 : found;
}

/**
 * Words as they are stored, with the space before them.
 * @param {string} text
 * @param {Token[]} tokens
 * @returns {Word[]}
 */
export function wordsOf(text, tokens) {
  return tokens.map(({ text: word, at, start, end, probability }) => ({
    word: at === 0 || /\s/.test(text[at - 1]) ? ` ${word}` : word,
    start,
    end,
    probability,
  }));
}
