// @ts-check
// Words of the translation of which the model is in doubt: marked, unless that is switched off.

import { marksDoubts } from "/edgeapp/static/doubt-switch.js";
import { Marks, rangeIn } from "./marks.js";

export class CueDoubts {
  constructor() {
    /** @type {Map<number, Marks>} by row */
    this.marks = new Map();
  }

  reset() {
    for (const marks of this.marks.values()) marks.set([]);
    this.marks.clear();
  }

  /** Mark the doubtful words of the sentences beside a row. @param {import("./rows.js").RowView} view */
  show(view) {
    const { id } = view.row;
    let marks = this.marks.get(id);
    if (!marks && !view.cues.some(({ cue }) => cue.doubts.length)) return;
    if (!marks) this.marks.set(id, (marks = new Marks("ea-doubt")));
    const places = view.meant.querySelectorAll(".ea-cue");
    const shown = marksDoubts() ? view.cues : [];
    marks.set(shown.flatMap(({ cue }, i) => cue.doubts.map(([start, end]) => rangeIn(places[i], start, end))));
  }
}
