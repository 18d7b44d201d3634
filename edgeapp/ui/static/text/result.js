// @ts-check
// The pane of a translation, which grows by many small pieces. Only lines that have changed are
// written, and rarely enough that the page stays free for other work.

import { marksDoubts } from "../doubt-switch.js";
import { Marks, rangeIn } from "../editor/marks.js";

const OFTEN_MS = 40;
const SHARE = 4; // of the time, writing takes a fifth at most
const LONGEST_TAIL = 20_000; // characters; a longer old translation is not shown behind the new one

export class ResultPane {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.text = "";
    this.tail = "";
    /** @type {string[]} */
    this.shown = []; // lines, as keys
    this.soon = 0;
    this.cost = 0; // of the last writing, in milliseconds
    this.marks = new Marks("ea-doubt");
    /** @type {[number, number][]} */
    this.doubts = []; // spans of the text
  }

  /** The text, and what is left of the old one behind it. */
  get all() {
    return this.text + this.tail;
  }

  /**
   * @param {string} text
   * @param {string} [old] shown behind it in gray, to avoid flicker
   */
  set(text, old = "") {
    if (this.doubts.length) this.doubt([]);
    this.text = text;
    this.tail = old.length > LONGEST_TAIL ? "" : old;
    if (!text && !old) return this.write();
    if (!this.soon) this.soon = window.setTimeout(() => this.write(), Math.max(OFTEN_MS, SHARE * this.cost));
  }

  /** Mark words of which the model is in doubt. @param {[number, number][]} spans of the text */
  doubt(spans) {
    this.doubts = spans;
    this.mark();
  }

  /** Show the marks, if they are wished. */
  mark() {
    const ranges = [];
    let [line, begins] = [0, 0];
    for (const [start, end] of marksDoubts() ? this.doubts : []) {
      while (begins + (this.shown[line]?.length ?? 0) < start && line < this.shown.length) {
        begins += this.shown[line++].length + 1;
      }
      const place = this.element.children[line];
      ranges.push(place ? rangeIn(place, start - begins, end - begins) : null);
    }
    this.marks.set(ranges);
  }

  write() {
    clearTimeout(this.soon);
    this.soon = 0;
    const began = performance.now();
    const lines = this.text ? this.text.split("\n").map((line) => [line, ""]) : [];
    this.tail.split("\n").forEach((line, i) => {
      if (i || !lines.length) lines.push(["", line]);
      else lines[lines.length - 1][1] = line;
    });
    if (!this.all) lines.length = 0;
    const keys = lines.map(([line, old]) => (old ? `${line}\n${old}` : line));
    let same = 0;
    while (same < keys.length && keys[same] === this.shown[same]) same++;
    const { children } = this.element;
    for (let i = same; i < lines.length; i++) {
      const place = children[i] ?? this.element.appendChild(document.createElement("div"));
      const [line, old] = lines[i];
      place.textContent = line || (old ? "" : "\u200b"); // an empty line has a height
      if (!old) continue;
      const tail = document.createElement("span");
      tail.className = "ea-tail";
      tail.textContent = old;
      place.append(tail);
    }
    while (children.length > lines.length) children[children.length - 1].remove();
    this.shown = keys;
    void this.element.offsetHeight; // laid out now: its time counts too
    this.cost = performance.now() - began;
  }
}
