// The captions of the Live tab: lines that grow, cues for the download, scrolling.

import { clock, make } from "/edgeapp/static/elements.js";

const NEAR_PX = 80;

/** root: the tab's element. Set `changed` to a function that is called when lines come or go, and
 * `hear` to one that plays what was said between two times, in seconds. */
export class Captions {
  constructor(root) {
    this.find = (selector) => root.querySelector(selector);
    this.list = this.find(".ea-lines");
    this.lines = new Map(); // id → element; ids go on over several sessions
    this.cut = new Map(); // id → what was cleared from the screen
    this.cues = [];
    this.translated = [];
    // What sessions before the current one have added.
    this.base = { id: 0, time: 0, cues: 0, translated: 0 };
    this.follow = true;
    this.changed = () => {};
    this.hear = null;
    const place = this.find(".ea-captions");
    place.onscroll = () => {
      const left = place.scrollHeight - place.scrollTop - place.clientHeight;
      this.follow = left < NEAR_PX;
      this.find(".ea-newest").hidden = this.follow;
    };
    // On a phone that is turned, the end stays in view.
    new ResizeObserver(() => this.scroll()).observe(place);
    this.find(".ea-newest").onclick = () => {
      this.follow = true;
      this.scroll();
    };
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

  addCue({ translated, start, end, text }) {
    const cue = { start: start + this.base.time, end: end + this.base.time, text };
    (translated ? this.translated : this.cues).push(cue);
  }

  show({ id, start, end, text, tail, translation, running }) {
    id += this.base.id;
    const cut = this.cut.get(id) ?? { text: 0, translation: 0 };
    let line = this.lines.get(id);
    if (!line) {
      line = make("li", { class: "ea-line-of" });
      line.append(
        this.time(start + this.base.time, line),
        make("p", { class: "ea-said" }),
        make("p", { class: "ea-meant" }),
      );
      this.lines.set(id, line);
      this.list.append(line);
    }
    line.hidden = !(text || tail).slice(cut.text);
    fillText(line.querySelector(".ea-said"), text.slice(cut.text), tail);
    fillText(line.querySelector(".ea-meant"), translation.slice(cut.translation), running);
    line.dataset.end = end + this.base.time;
    line.dataset.text = text.length;
    line.dataset.translation = translation.length;
    this.changed();
    this.scroll();
  }

  /** When a line began: a button that plays it, where there is sound. */
  time(start, line) {
    const shown = make("time", { class: "ea-chip" }, clock(start));
    if (!this.hear) return shown;
    const button = make("button", { type: "button", class: "ea-hear", "aria-label": `Hear ${clock(start)}` }, shown);
    button.onclick = () => this.hear(start, Number(line.dataset.end));
    return button;
  }

  scroll() {
    const place = this.find(".ea-captions");
    if (this.follow) place.scrollTop = place.scrollHeight;
  }

  /** Clear the screen; the cues stay. */
  clear() {
    // The text that the running line already has must not come back with its next words.
    for (const [id, { dataset }] of this.lines) {
      this.cut.set(id, { text: Number(dataset.text), translation: Number(dataset.translation) });
    }
    this.lines.clear();
    this.list.replaceChildren();
    this.changed();
  }

  /** Forget everything. Returns a function that brings it back. */
  forget() {
    const { lines, cut, cues, translated, base } = this;
    const elements = [...this.list.children];
    const put = (state, children) => {
      Object.assign(this, state);
      this.list.replaceChildren(...children);
      this.changed();
      this.scroll();
    };
    const nothing = { id: 0, time: 0, cues: 0, translated: 0 };
    put({ lines: new Map(), cut: new Map(), cues: [], translated: [], base: nothing }, []);
    return () => put({ lines, cut, cues, translated, base }, elements);
  }
}

/** Show final text and the tail that may still change, which is hidden from screen readers. */
function fillText(place, final, tail) {
  const parts = [final];
  if (tail) parts.push(make("span", { class: "ea-tail", "aria-hidden": "true" }, tail));
  if (final && tail && !/^\s/.test(tail)) parts.splice(1, 0, " ");
  place.replaceChildren(...parts);
}
