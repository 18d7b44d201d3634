// @ts-check
// Searching without case and diacritics, as the history does.

/**
 * A text without case and diacritics.
 * @param {string} text
 * @returns {{text: string, offsets: Uint32Array | null}} where each of its characters comes from;
 *     null: from the same offset
 */
export function fold(text) {
  if (/^[\x20-\x7e]*$/.test(text)) return { text: text.toLowerCase(), offsets: null };
  let folded = "";
  const offsets = [];
  let at = 0;
  for (const letter of text) {
    const plain = letter.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
    for (let i = 0; i < plain.length; i++) offsets.push(at);
    folded += plain;
    at += letter.length;
  }
  offsets.push(at);
  return { text: folded, offsets: Uint32Array.from(offsets) };
}

/**
 * Where a text contains another one.
 * @param {string} text
 * @param {string} sought folded
 * @returns {{start: number, end: number}[]}
 */
export function occurrencesIn(text, sought) {
  if (!sought.trim()) return [];
  const { text: folded, offsets } = fold(text);
  const places = [];
  for (let at = folded.indexOf(sought); at >= 0; at = folded.indexOf(sought, at + sought.length)) {
    const last = at + sought.length;
    places.push({ start: offsets ? offsets[at] : at, end: offsets ? offsets[last] : last });
  }
  return places;
}
