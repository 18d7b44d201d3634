// @ts-check
// Words of which the model is in doubt: marked, and heard one after the other, the least certain
// first. Tab plays the next one, Enter accepts it, typing replaces it, Escape ends.

import { Marks, rangeIn } from "./marks.js";
import { accepted, doubts, tokensIn } from "./transcript.js";

const BELOW = 0.5; // probability

export class Doubts {
  /** @param {import("./editor.js").Editor} editor */
  constructor(editor) {
    this.editor = editor;
    /** @type {Map<number, Marks>} by row */
    this.marks = new Map();
    this.active = false;
    this.id = this.index = 0; // of the word that is shown
    this.text = "";
    /** @type {Set<string>} that were passed by with Tab */
    this.passed = new Set();
  }

  reset() {
    for (const marks of this.marks.values()) marks.set([]);
    this.marks.clear();
    this.passed.clear();
    this.active = false;
  }

  /** Mark the doubtful words of a row. @param {import("./transcript.js").Row} row */
  show(row) {
    const view = this.editor.view(row.id);
    if (!view) return;
    const places = doubts({ rows: [row], cues: [], lastId: 0 }, BELOW);
    let marks = this.marks.get(row.id);
    if (!places.length && !marks) return;
    if (!marks) this.marks.set(row.id, (marks = new Marks("ea-doubt")));
    marks.set(
      places.map(({ index }) => {
        const { at, text } = tokensIn(row)[index];
        return rangeIn(view.said, at, at + text.length);
      }),
    );
  }

  get all() {
    return doubts(this.editor.transcript, BELOW);
  }

  /** Show and play the next doubtful word. @returns {boolean} whether there is one */
  next() {
    const all = this.all;
    if (all.every((each) => this.passed.has(key(each)))) this.passed.clear();
    const found = all.find((each) => !this.passed.has(key(each)));
    this.active = Boolean(found);
    if (!found) return false;
    this.id = found.id;
    this.index = found.index;
    this.passed.add(key(found));
    const token = this.editor.tokens(found.id)[found.index];
    if (!token) return false;
    this.text = token.text;
    this.editor.focus(found.id, token.at, token.at + token.text.length);
    this.editor.hear(found.id, found.index);
    return true;
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was for this */
  pressed(event) {
    if (!this.active) return false;
    if (event.key === "Escape") this.active = false;
    else if (event.key === "Tab" && !event.shiftKey) this.next();
    else if (event.key === "Enter") {
      // A word that was replaced meanwhile is certain already.
      const same = this.editor.tokens(this.id)[this.index]?.text === this.text;
      if (same) this.editor.apply(accepted(this.editor.transcript, this.id, this.index));
      this.next();
    } else return false;
    event.preventDefault();
    this.editor.bar.update();
    return true;
  }
}

/** @param {{id: number, index: number}} place */
const key = ({ id, index }) => `${id} ${index}`;
