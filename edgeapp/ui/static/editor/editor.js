// @ts-check
// The editor of a transcript: rows that are played, corrected, divided and joined, with undo. Finding,
// doubts and translation have files of their own.

import { CueDoubts } from "./cue-doubts.js";
import { Doubts } from "./doubts.js";
import { Finder } from "./finder.js";
import { Marks, offsetAtPoint, offsetIn, rangeIn } from "./marks.js";
import { Rows, textOf } from "./rows.js";
import { Sentences } from "./sentences.js";
import { toolbar } from "./toolbar.js";
import * as model from "./transcript.js";
import { UndoStack } from "./undo.js";
import { correction, wordAt } from "./words.js";

/** @typedef {import("./transcript.js").Transcript} Transcript */
/** @typedef {import("./transcript.js").Segment} Segment */

const BEFORE_S = 0.15; // a word is played from a little before it
const HEARD_S = 1.5;
const REST_MS = 4000; // after scrolling or typing, the text does not follow the sound for so long
const NUDGE_S = 0.1;
const CHECKED_MS = 500; // after scrolling to a row

export class Editor {
  /**
   * @param {HTMLElement} list of the rows
   * @param {HTMLElement} tools where the toolbar goes
   * @param {any} player see player.js
   */
  constructor(list, tools, player) {
    this.list = list;
    this.player = player;
    this.changed = () => {}; // set it to be told of corrections
    this.stack = new UndoStack(model.EMPTY);
    this.spoken = new Marks("ea-spoken");
    this.doubts = new Doubts(this);
    this.cueDoubts = new CueDoubts();
    const shown = (/** @type {model.Row} */ row) => this.doubts.show(row);
    this.rows = new Rows(list, shown, (view) => this.cueDoubts.show(view), () => this.complete());
    this.finder = new Finder(this);
    this.sentences = new Sentences(this);
    this.current = 0; // id of the row that the tools work on
    this.before = ""; // its text when the caret came
    this.now = 0; // id of the row that is played
    /** @type {HTMLElement | null} */
    this.running = null; // a translation that is still being decoded
    this.wanted = 0; // id of a row to scroll to as soon as it is there
    this.restsUntil = 0;
    this.checking = 0;
    this.bar = toolbar(this);
    tools.replaceChildren(this.bar.element, this.finder.element, this.finder.offer);
    this.tools = tools;
    this.listen();
    this.update();
  }

  get transcript() {
    return this.stack.value;
  }

  get count() {
    return this.transcript.rows.length;
  }

  listen() {
    const { list } = this;
    list.addEventListener("click", (event) => this.clicked(event));
    list.addEventListener("input", (event) => this.typed(/** @type {HTMLElement} */ (event.target)));
    list.addEventListener("focusin", (event) => this.entered(/** @type {HTMLElement} */ (event.target)));
    list.addEventListener("focusout", (event) => this.left(/** @type {HTMLElement} */ (event.target)));
    list.addEventListener("keydown", (event) => this.pressed(event));
    list.addEventListener("paste", (event) => pasted(event));
    list.addEventListener("beforeinput", (event) => {
      if (event.inputType !== "historyUndo" && event.inputType !== "historyRedo") return;
      event.preventDefault();
      if (event.inputType === "historyUndo") this.undo();
      else this.redo();
    });
    const rest = () => {
      this.restsUntil = performance.now() + REST_MS;
      clearTimeout(this.checking);
    };
    for (const type of ["wheel", "touchmove"]) addEventListener(type, rest, { passive: true });
  }

  /** Show a whole transcript. @param {Segment[]} cues @param {Segment[]} translation
   * @param {{language?: string | null, target?: string | null}} languages */
  open(cues, translation, { language, target }) {
    this.clear({ target });
    this.sentences.languages = { language: language ?? null, target: target ?? null };
    this.put(model.fromRecord(cues, translation));
  }

  /** Remove all rows. @param {{target?: string | null}} languages of those that will be added */
  clear({ target = null } = {}) {
    this.rows.clear();
    this.finder.close();
    this.doubts.reset();
    this.cueDoubts.reset();
    this.sentences.reset({ language: null, target });
    this.spoken.set([]);
    this.now = this.current = 0;
    this.list.classList.toggle("ea-two", Boolean(target));
    this.put(model.EMPTY);
  }

  /** A state that is not undone, nor what was before it. @param {Transcript} transcript */
  put(transcript) {
    this.stack.reset(transcript);
    this.rows.render(transcript);
    this.update();
  }

  /** Add what the server has recognized; corrections so far stay. @param {Segment} segment */
  add(segment) {
    this.rows.retract();
    this.put(model.withSegment(this.transcript, segment));
  }

  /** Add a translated sentence. @param {Segment} cue */
  translate(cue) {
    if (this.running) this.running.textContent = "";
    this.put(model.withCue(this.transcript, cue));
  }

  /** Words as they are decoded, which may still change. @param {string} text @param {boolean} [translation] */
  append(text, translation = false) {
    if (!translation) return this.rows.append(text);
    const { rows, cues } = this.transcript;
    const last = cues.at(-1)?.rows.at(-1);
    const at = rows.findIndex((row) => row.id === last) + 1;
    const view = this.rows.views.get((rows[at] ?? rows.at(-1))?.id ?? -1);
    if (!view) return;
    this.running = view.running;
    this.running.textContent += text;
  }

  /** Remove the decoded words that are not part of a segment yet. */
  retract() {
    this.rows.retract();
  }

  /** A correction. @param {Transcript} transcript @param {string} [kind] see UndoStack */
  apply(transcript, kind = "") {
    if (transcript === this.transcript) return;
    this.stack.push(transcript, kind);
    this.rows.render(transcript);
    this.update();
    this.changed();
  }

  /** A part of the correction before, as its translation. @param {Transcript} transcript */
  amend(transcript) {
    this.stack.amend(transcript);
    this.rows.render(transcript);
    this.changed();
  }

  undo() {
    if (this.stack.undo()) this.restored();
  }

  redo() {
    if (this.stack.redo()) this.restored();
  }

  restored() {
    this.finder.offered(null);
    this.before = this.row(this.current)?.text ?? "";
    this.rows.render(this.transcript);
    this.update();
    this.changed();
    this.sentences.translateAgain(); // a state from before its translation arrived
  }

  /** For exports and the history. */
  texts() {
    return model.toMessage(this.transcript);
  }

  update() {
    this.tools.hidden = !this.count;
    this.bar.update();
    this.finder.refresh();
  }

  /** @param {number} id */
  row(id) {
    return this.transcript.rows.find((row) => row.id === id);
  }

  /** The words of a row. @param {number} id */
  tokens(id) {
    const row = this.row(id);
    return row ? model.tokensIn(row) : [];
  }

  /** @param {number} id */
  view(id) {
    return this.rows.views.get(id);
  }

  /** The range of a word on the page. @param {number} id of its row @param {number} index */
  rangeOf(id, index) {
    const [view, token] = [this.view(id), this.tokens(id)[index]];
    return view && token ? rangeIn(view.said, token.at, token.at + token.text.length) : null;
  }

  // Playing

  /** Show what is spoken at a time. @param {number} time seconds; below 0: nothing */
  mark(time) {
    const index = time < 0 ? -1 : model.rowAt(this.transcript, time);
    const row = this.transcript.rows[index];
    const id = row && time < row.end + 0.3 ? row.id : 0;
    if (id !== this.now) {
      this.view(this.now)?.item.classList.remove("ea-now");
      this.view(id)?.item.classList.add("ea-now");
      this.now = id;
      if (id && this.player.playing) this.follow(id);
    }
    const word = id && this.player.playing ? model.tokensIn(row).findLastIndex((token) => token.start <= time) : -1;
    this.spoken.set(word < 0 ? [] : [this.rangeOf(id, word)]);
  }

  /** Mark a text that was searched for, and scroll to it: the whole of it, else the first of its
   * words that is there. @param {string} text @param {string[]} words */
  seek(text, words) {
    const found = [text, ...words].find((each) => model.occurrences(this.transcript, each).length);
    if (found) this.finder.open(found);
  }

  /** @param {number} id of the row to keep in view */
  follow(id) {
    if (performance.now() < this.restsUntil) return;
    this.reveal(id);
  }

  /** Scroll to a row, if it is not in view. @param {number} id @param {boolean} [again] */
  reveal(id, again = true) {
    const item = this.view(id)?.item;
    this.wanted = item ? 0 : id;
    if (!item) return;
    // The heights of rows that were never in view are estimates.
    clearTimeout(this.checking);
    if (again) this.checking = window.setTimeout(() => this.reveal(id, false), CHECKED_MS);
    const [box, top] = [item.getBoundingClientRect(), this.tools.getBoundingClientRect().bottom];
    if (box.top < top || box.bottom > innerHeight - 60) {
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      item.scrollIntoView({ block: "center", behavior: still ? "instant" : "smooth" });
    }
  }

  /** All rows of a long transcript are there. */
  complete() {
    this.finder.refresh();
    if (this.wanted) this.reveal(this.wanted);
  }

  /** Play 1.5 s around a word. @param {number} id of its row @param {number} index */
  hear(id, index) {
    const token = this.tokens(id)[index];
    if (!token) return;
    const from = Math.max(0, (token.start + token.end - HEARD_S) / 2);
    this.player.playSpan(from, from + HEARD_S);
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const item = /** @type {HTMLElement | null} */ (target.closest("li[data-row]"));
    const row = this.row(Number(item?.dataset.row));
    if (!row) return;
    if (target.closest(".ea-time")) return this.player.play(row.start);
    const said = target.closest(".ea-said");
    if (!said || !getSelection()?.isCollapsed) return;
    const tokens = model.tokensIn(row);
    const token = tokens[wordAt(tokens, offsetAtPoint(said, event.clientX, event.clientY))];
    if (!token) return;
    const from = Math.max(0, token.start - BEFORE_S);
    if (this.player.playing) this.player.play(from);
    else this.player.playSpan(from, Math.max(token.end + BEFORE_S, from + HEARD_S));
  }

  // Correcting

  /** @param {HTMLElement} place */
  typed(place) {
    this.finder.offered(null); // of the correction before
    this.restsUntil = performance.now() + REST_MS;
    if (place.dataset.row) {
      const id = Number(place.dataset.row);
      this.apply(model.withText(this.transcript, id, textOf(place)), `text ${id}`);
    } else if (place.dataset.cue) {
      const index = Number(place.dataset.cue);
      this.apply(model.withCueText(this.transcript, index, textOf(place)), `cue ${index}`);
    }
  }

  /** @param {HTMLElement} place */
  entered(place) {
    const id = Number(place.dataset.row ?? 0);
    if (!id) return;
    this.current = id;
    this.before = this.row(id)?.text ?? "";
    this.bar.update();
  }

  /** @param {HTMLElement} place */
  left(place) {
    this.stack.pause();
    const row = this.row(Number(place.dataset.row ?? 0));
    if (!row || row.text === this.before) return;
    const text = row.text.replace(/\s+/g, " ").trim();
    this.stack.amend(model.withText(this.transcript, row.id, text));
    this.rows.render(this.transcript);
    this.finder.offered(correction(this.before, text));
    this.before = text;
    this.sentences.translateAgain();
  }

  /** The row with the caret, and the offset of the caret in it. */
  caret() {
    const view = this.view(this.current);
    const selection = getSelection();
    const offset = view && selection ? offsetIn(view.said, selection.focusNode, selection.focusOffset) : -1;
    return { id: this.current, offset };
  }

  divide() {
    const { id, offset } = this.caret();
    if (offset < 0) return;
    const after = model.divided(this.transcript, id, offset);
    if (after === this.transcript) return;
    this.apply(after);
    this.focus(after.lastId, 0);
  }

  /** Join a row with the next one. @param {number} [id] */
  join(id = this.current) {
    const length = this.row(id)?.text.length ?? 0;
    const after = model.joined(this.transcript, id);
    if (after === this.transcript) return;
    this.apply(after);
    this.focus(id, length);
    this.sentences.translateAgain();
  }

  /** @param {"start" | "end"} edge @param {number} sign */
  nudge(edge, sign) {
    this.apply(model.nudged(this.transcript, this.current, edge, sign * NUDGE_S), `${edge} ${this.current}`);
    const row = this.row(this.current);
    if (row) this.player.playSpan(edge === "start" ? row.start : Math.max(row.start, row.end - HEARD_S), edge === "start" ? Math.min(row.end, row.start + HEARD_S) : row.end);
  }

  /** Put the caret into a row. @param {number} id @param {number} start @param {number} [end] of a selection */
  focus(id, start, end = start) {
    const view = this.view(id);
    if (!view) return;
    view.said.focus({ preventScroll: true });
    this.reveal(id);
    const range = rangeIn(view.said, start, end);
    if (range) getSelection()?.setBaseAndExtent(range.startContainer, range.startOffset, range.endContainer, range.endOffset);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.isComposing) return;
    const control = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (control && key === "z") {
      if (event.shiftKey) this.redo();
      else this.undo();
    } else if (control && key === "y") this.redo();
    else if (control && key === "f") this.finder.open();
    else if (this.doubts.pressed(event)) return;
    else if (event.key === "Escape") /** @type {HTMLElement} */ (event.target).blur();
    else if (event.key === "Enter") {
      if (/** @type {HTMLElement} */ (event.target).dataset.row) this.divide();
      else /** @type {HTMLElement} */ (event.target).blur();
    } else if (event.key === "Backspace" && this.joinsBackwards()) return event.preventDefault();
    else return;
    event.preventDefault();
  }

  /** At the beginning of a row, Backspace joins it with the row before. */
  joinsBackwards() {
    const { id, offset } = this.caret();
    const index = this.transcript.rows.findIndex((row) => row.id === id);
    if (offset !== 0 || index < 1 || !getSelection()?.isCollapsed) return false;
    if (!this.view(id)?.said.contains(document.activeElement)) return false;
    this.join(this.transcript.rows[index - 1].id);
    return true;
  }
}

/** Paste as one line of text. @param {ClipboardEvent} event */
function pasted(event) {
  event.preventDefault();
  const text = event.clipboardData?.getData("text/plain").replace(/\s+/g, " ") ?? "";
  document.execCommand("insertText", false, text);
}
