// The captions of the Live tab: lines that grow, cues for the download, scrolling.

import { marksDoubts } from "/edgeapp/static/doubt-switch.js";
import { Marks, rangeIn } from "/edgeapp/static/editor/marks.js";
import { clock, make } from "/edgeapp/static/elements.js";
import { t } from "/edgeapp/static/texts.js";

const NEAR_PX = 80;

/** root: the tab's element. doubts: mark the words of translations of which the model is in doubt. Set
 * `changed` to a function that is called when lines come or go, and
 * `hear` to one that plays what was said between two times, in seconds. */
export class Captions {
  constructor(root, { doubts = false } = {}) {
    this.doubts = doubts;
    this.doubtful = new Map(); // id → {marks, spans}: of the shown translation
    this.find = (selector) => root.querySelector(selector);
    this.list = this.find(".ea-lines");
    this.lines = new Map(); // id → element; ids go on over several sessions
    this.cut = new Map(); // id → what was cleared from the screen
    this.cues = [];
    this.translated = [];
    // What sessions before the current one have added.
    this.base = { id: 0, time: 0, cues: 0, translated: 0 };
    this.follow = true;
    this.size = ""; // when the end was last shown
    this.changed = () => {};
    this.hear = null;
    const place = this.find(".ea-captions");
    place.onscroll = () => {
      // What a new size moves, as on a phone that is turned, is not the reader's doing.
      if (this.follow && this.size !== sizeOf(place)) return this.scroll();
      const left = place.scrollHeight - place.scrollTop - place.clientHeight;
      this.follow = left < NEAR_PX;
      this.find(".ea-newest").hidden = this.follow;
    };
    const resized = new ResizeObserver(() => this.scroll());
    resized.observe(place);
    resized.observe(this.list);
    this.find(".ea-newest").onclick = () => this.toEnd();
  }

  /** A new session begins: what is there stays above it. time: when, in seconds. */
  begin(time) {
    const id = this.lines.size ? Math.max(...this.lines.keys()) + 1 : this.base.id;
    this.base = { id, time, cues: this.cues.length, translated: this.translated.length };
  }

  /** Replace the current session's captions by what the server has. */
  restore({ lines, cues, translated }) {
    this.cues.length = this.base.cues;
    this.translated.length = this.base.translated;
    for (const cue of cues) this.addCue(cue);
    for (const cue of translated) this.addCue({ ...cue, translated: true });
    for (const line of lines) this.show(line);
  }

  addCue({ translated, start, end, text, speaker }) {
    const cue = { start: start + this.base.time, end: end + this.base.time, text, speaker };
    (translated ? this.translated : this.cues).push(cue);
  }

  show({ id, start, end, speaker, text, tail, translation, running, doubts = [] }) {
    id += this.base.id;
    const cut = this.cut.get(id) ?? { text: "", translation: 0 };
    let line = this.lines.get(id);
    if (!text.startsWith(cut.text)) {
      // It is corrected: what was cleared stays away, and what was said since then stays visible.
      const visible = line ? line.dataset.text.length - cut.text.length : 0;
      cut.text = text.slice(0, wordBoundary(text, text.length - visible));
    }
    const cleared = cut.text.length;
    if (!line) {
      line = make("li", { class: "ea-line-of" });
      line.append(
        this.time(start + this.base.time, line),
        ...(speaker ? [make("b", { class: "ea-who" }, speaker)] : []),
        make("p", { class: "ea-said" }),
        make("p", { class: "ea-meant" }),
      );
      this.lines.set(id, line);
      this.list.append(line);
    }
    line.hidden = !(text || tail).slice(cleared);
    fillText(line.querySelector(".ea-said"), text.slice(cleared), tail);
    fillText(line.querySelector(".ea-meant"), translation.slice(cut.translation), running);
    if (this.doubts && (doubts.length || this.doubtful.has(id))) {
      const spans = doubts.map((span) => span.map((at) => at - cut.translation)).filter(([start]) => start >= 0);
      this.mark(id, line, spans);
    }
    line.dataset.end = end + this.base.time;
    line.dataset.text = text;
    line.dataset.translation = translation.length;
    this.changed();
    this.scroll();
  }

  /** Mark doubtful words of a line's translation; without spans, those known already. */
  mark(id, line, spans = this.doubtful.get(id)?.spans ?? []) {
    const marks = this.doubtful.get(id)?.marks ?? new Marks("ea-doubt");
    this.doubtful.set(id, { marks, spans });
    const place = line.querySelector(".ea-meant");
    marks.set(marksDoubts() ? spans.map(([start, end]) => rangeIn(place, start, end)) : []);
  }

  /** Mark the doubts of all lines, if they are to be marked. */
  markAll() {
    for (const [id, line] of this.lines) if (this.doubtful.has(id)) this.mark(id, line);
  }

  unmark() {
    for (const { marks } of this.doubtful.values()) marks.set([]);
    this.doubtful.clear();
  }

  /** When a line began: a button that plays it, where there is sound. */
  time(start, line) {
    const shown = make("time", { class: "ea-chip" }, clock(start));
    if (!this.hear) return shown;
    const button = make("button", { type: "button", class: "ea-hear", "aria-label": t("Hear {time}", { time: clock(start) }) }, shown);
    button.onclick = () => this.hear(start, Number(line.dataset.end));
    return button;
  }

  /** Go to the end, and stay there. */
  toEnd() {
    this.follow = true;
    this.scroll();
  }

  scroll() {
    const place = this.find(".ea-captions");
    if (!this.follow) return;
    place.scrollTop = place.scrollHeight;
    this.size = sizeOf(place);
  }

  /** Clear the screen; the cues stay. */
  clear() {
    // The text that the running line already has must not come back with its next words.
    for (const [id, { dataset }] of this.lines) {
      this.cut.set(id, { text: dataset.text, translation: Number(dataset.translation) });
    }
    this.lines.clear();
    this.unmark();
    this.list.replaceChildren();
    this.changed();
  }

  /** Forget everything. Returns a function that brings it back. */
  forget() {
    const { lines, cut, cues, translated, base } = this;
    const doubtful = new Map(this.doubtful);
    this.unmark();
    const elements = [...this.list.children];
    const put = (state, children) => {
      Object.assign(this, state);
      this.list.replaceChildren(...children);
      this.changed();
      this.scroll();
    };
    const nothing = { id: 0, time: 0, cues: 0, translated: 0 };
    put({ lines: new Map(), cut: new Map(), cues: [], translated: [], base: nothing, doubtful: new Map() }, []);
    return () => {
      put({ lines, cut, cues, translated, base, doubtful }, elements);
      this.markAll();
    };
  }
}

/** What changes with the size of the captions or of their place. */
const sizeOf = (place) => `${place.scrollHeight} ${place.clientHeight}`;

/** The position between two words of a text that is nearest to another position. */
function wordBoundary(text, at) {
  if (!/\s/.test(text)) return Math.max(0, at); // languages that are written without spaces
  const boundaries = [...text.matchAll(/^|\s|$/g)].map(({ index }) => index);
  return boundaries.reduce((best, each) => (Math.abs(each - at) < Math.abs(best - at) ? each : best));
}

/** Show final text and the tail that may still change, which is hidden from screen readers. */
function fillText(place, final, tail) {
  const parts = [final];
  if (tail) parts.push(make("span", { class: "ea-tail", "aria-hidden": "true" }, tail));
  if (final && tail && !/^\s/.test(tail)) parts.splice(1, 0, " ");
  place.replaceChildren(...parts);
}
