// Hands a text of the history to the Text tab, which may not have been opened yet.

/** @type {{record: number, text: string, translation: string, language: string | null, target: string | null} | null} */
let waiting = null;

/** Open a text in the Text tab. */
export function reopenText(text) {
  waiting = text;
  location.hash = "#text";
  dispatchEvent(new Event("ea-text"));
}

/** The text that waits for the Text tab; null if there is none. */
export function takeText() {
  const text = waiting;
  waiting = null;
  return text;
}
