// @ts-check
// The rows of a transcript on the page. Only what has changed is written, and long transcripts are
// added in parts, so that the page never stops.

import { clock, make } from "/edgeapp/static/parts.js";
import { t } from "/edgeapp/static/texts.js";

/** @typedef {import("./transcript.js").Transcript} Transcript */
/** @typedef {import("./transcript.js").Row} Row */
/** @typedef {import("./transcript.js").Cue} Cue */

/** @typedef {{cue: Cue, index: number}} Placed a sentence of the translation, and its index */

/**
 * @typedef {object} RowView
 * @property {Row} row as it is shown
 * @property {HTMLElement} item
 * @property {HTMLElement} time
 * @property {HTMLElement} said
 * @property {HTMLElement} meant
 * @property {HTMLElement} running a translation that is still being decoded
 * @property {Placed[]} cues as they are shown
 */

const AT_ONCE = 60; // rows
const SPACES = /[\u00a0\n\r\t]/g;

/** The text of an element that is edited; its offsets are those of the element. @param {Node} element */
export const textOf = (element) => (element.textContent ?? "").replace(SPACES, " ");

export class Rows {
  /**
   * @param {HTMLElement} list
   * @param {(row: Row) => void} shown called when a row is added or its text has changed
   * @param {(view: RowView) => void} translated called when the translation of a row has changed
   * @param {() => void} complete called when all rows of a long transcript are there
   */
  constructor(list, shown, translated, complete) {
    this.list = list;
    this.shown = shown;
    this.translated = translated;
    this.complete = complete;
    /** @type {Map<number, RowView>} */
    this.views = new Map();
    this.soon = 0;
    /** @type {HTMLElement | null} */
    this.live = null;
  }

  /** Show a transcript. @param {Transcript} transcript */
  render(transcript) {
    clearTimeout(this.soon);
    const continued = this.soon;
    this.soon = 0;
    const { rows } = transcript;
    const wanted = new Set(rows.map((row) => row.id));
    for (const [id, view] of this.views) {
      if (wanted.has(id)) continue;
      view.item.remove();
      this.views.delete(id);
    }
    const cues = this.cuesByRow(transcript);
    let written = 0;
    let next = this.list.firstElementChild;
    for (const row of rows) {
      let view = this.views.get(row.id);
      if (view?.row !== row && ++written > AT_ONCE) {
        this.soon = window.setTimeout(() => this.render(transcript));
        return;
      }
      view ??= this.create(row);
      if (view.item === next) next = next.nextElementSibling;
      else this.list.insertBefore(view.item, next);
      if (view.row !== row) this.update(view, row);
      this.showCues(view, cues.get(row.id) ?? []);
    }
    if (continued) this.complete();
  }

  /** @param {Transcript} transcript */
  cuesByRow(transcript) {
    /** @type {Map<number, Placed[]>} */
    const cues = new Map();
    transcript.cues.forEach((cue, index) => {
      const own = cues.get(cue.rows[0]);
      if (own) own.push({ cue, index });
      else cues.set(cue.rows[0], [{ cue, index }]);
    });
    return cues;
  }

  /** @param {Row} row */
  create(row) {
    const time = make("button", { type: "button", class: "ea-chip ea-time" });
    const said = editable("ea-said", row.text);
    said.dataset.row = String(row.id);
    const meant = make("div", { class: "ea-meant" });
    const running = make("span", { class: "ea-tail", "aria-hidden": "true" });
    meant.append(running);
    const item = make("li", {}, time, said, meant);
    item.dataset.row = String(row.id);
    const view = { row, item, time, said, meant, running, cues: [] };
    this.views.set(row.id, view);
    this.label(view, row);
    this.list.insertBefore(item, this.live);
    this.shown(row);
    return view;
  }

  /** @param {RowView} view @param {Row} row */
  update(view, row) {
    if (view.row.start !== row.start) this.label(view, row);
    view.row = row;
    if (textOf(view.said) !== row.text) view.said.textContent = row.text;
    this.shown(row);
  }

  /** @param {RowView} view @param {Row} row */
  label(view, row) {
    view.time.textContent = clock(row.start);
    if (row.speaker) view.time.append(" ", make("b", { class: "ea-who" }, row.speaker));
    view.time.setAttribute("aria-label", t("Play from {time}", { time: clock(row.start) }));
    view.said.setAttribute("aria-label", t("Text at {time}", { time: clock(row.start) }));
  }

  /** @param {RowView} view @param {Placed[]} cues */
  showCues(view, cues) {
    const same = (/** @type {Placed} */ { cue, index }, /** @type {number} */ i) =>
      view.cues[i]?.cue === cue && view.cues[i].index === index;
    if (cues.length === view.cues.length && cues.every(same)) return;
    const shown = /** @type {HTMLElement[]} */ ([...view.meant.querySelectorAll(".ea-cue")]);
    cues.forEach(({ cue, index }, i) => {
      const place = shown[i] ?? editable("ea-cue", cue.text);
      place.dataset.cue = String(index);
      place.setAttribute("aria-label", t("Translation at {time}", { time: clock(view.row.start) }));
      if (!shown[i]) view.meant.insertBefore(place, view.running);
      else if (textOf(place) !== cue.text) place.textContent = cue.text;
    });
    for (const place of shown.slice(cues.length)) place.remove();
    view.cues = cues;
    this.translated(view);
  }

  /** Text that is being decoded, which may still change. @param {string} text */
  append(text) {
    const live = this.live ?? make("li", { class: "ea-live-row", "aria-hidden": "true" }, make("p", { class: "ea-tail" }));
    if (!this.live) this.list.append(live);
    live.firstElementChild.textContent += text;
    this.live = live;
  }

  retract() {
    this.live?.remove();
    this.live = null;
  }

  clear() {
    clearTimeout(this.soon);
    this.views.clear();
    this.live = null;
    this.list.replaceChildren();
  }
}

/** @param {string} name @param {string} text */
function editable(name, text) {
  const place = make("div", { class: name, role: "textbox", "aria-multiline": "false", spellcheck: "true" }, text);
  place.setAttribute("contenteditable", "plaintext-only");
  // A browser that does not know it takes it for "inherit".
  if (place.contentEditable !== "plaintext-only") place.contentEditable = "true";
  return place;
}
