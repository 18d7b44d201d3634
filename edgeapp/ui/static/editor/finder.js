// @ts-check
// Find and replace; and after a correction, the offer to make it everywhere.

import { make } from "/edgeapp/static/parts.js";
import { plural, t } from "/edgeapp/static/texts.js";
import { Marks, rangeIn } from "./marks.js";
import { exactOccurrences, occurrences, replacing } from "./transcript.js";

/** @typedef {{id: number, start: number, end: number}} Place */

const MOST_MARKED = 2000;
const AT_ONCE_MS = 30; // of work, before the page may do something else

export class Finder {
  /** @param {import("./editor.js").Editor} editor */
  constructor(editor) {
    this.editor = editor;
    this.found = new Marks("ea-found");
    this.here = new Marks("ea-found-here");
    /** @type {{id: number, start: number, end: number}[]} */
    this.places = [];
    this.at = 0;
    this.query = input("search", t("Find"));
    this.replacement = input("text", t("Replace with"));
    this.status = make("span", { class: "ea-facts", role: "status" });
    const button = (/** @type {string} */ text, /** @type {() => void} */ act, label = text) => {
      const made = make("button", { type: "button", class: "ea-quiet", "aria-label": label }, text);
      made.onclick = act;
      return made;
    };
    this.element = make("div", { class: "ea-find", role: "search", hidden: true });
    this.element.append(
      this.query,
      this.status,
      button("↑", () => this.step(-1), t("Previous place")),
      button("↓", () => this.step(1), t("Next place")),
      button("✕", () => this.close(), t("Close")),
      this.replacement,
      button(t("Replace"), () => this.replace(false)),
      button(t("Replace all"), () => this.replace(true)),
    );
    this.offer = make("div", { class: "ea-offer", role: "status", hidden: true });
    this.query.oninput = () => this.search();
    this.element.onkeydown = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") this.close();
      else if (event.key === "Enter" && event.target === this.query) this.step(event.shiftKey ? -1 : 1);
      else if (event.key === "Enter" && event.target === this.replacement) this.replace(false);
      else return;
      event.preventDefault();
    };
  }

  get opened() {
    return !this.element.hidden;
  }

  /** @param {string} [text] to search for; without it, the selected text */
  open(text) {
    const selected = text ?? getSelection()?.toString().trim() ?? "";
    this.element.hidden = false;
    if (selected) this.query.value = selected;
    this.search();
    if (text === undefined) {
      this.query.focus();
      this.query.select();
    }
  }

  close() {
    if (!this.opened) return;
    this.element.hidden = true;
    this.places = [];
    this.mark();
  }

  search() {
    this.places = occurrences(this.editor.transcript, this.query.value);
    this.at = 0;
    this.mark();
    this.reveal();
  }

  /** The text has changed. */
  refresh() {
    if (!this.opened) return;
    this.places = occurrences(this.editor.transcript, this.query.value);
    this.at = Math.min(this.at, Math.max(0, this.places.length - 1));
    this.mark();
  }

  /** @param {number} by */
  step(by) {
    if (!this.places.length) return;
    this.at = (this.at + by + this.places.length) % this.places.length;
    this.mark();
    this.reveal();
  }

  reveal() {
    const place = this.places[this.at];
    if (place) this.editor.reveal(place.id);
  }

  mark() {
    const range = (/** @type {{id: number, start: number, end: number}} */ { id, start, end }) => {
      const view = this.editor.view(id);
      return view ? rangeIn(view.said, start, end) : null;
    };
    this.found.set(this.places.slice(0, MOST_MARKED).map(range));
    this.here.set(this.places.length ? [range(this.places[this.at])] : []);
    const none = this.query.value.trim() ? t("Not found") : "";
    this.status.textContent = this.places.length ? t("{done} of {total}", { done: this.at + 1, total: this.places.length }) : none;
  }

  /** @param {boolean} all */
  replace(all) {
    this.change(() => (all ? this.places : this.places.slice(this.at, this.at + 1)), this.replacement.value);
  }

  /** Replace places. @param {() => Place[]} find them, again if the text changes meanwhile
   * @param {string} text */
  async change(find, text) {
    if (this.busy) return;
    this.busy = true;
    try {
      await this.changeAll(find, text);
    } finally {
      this.busy = false;
    }
  }

  /** @param {() => Place[]} find @param {string} text @returns {Promise<void>} */
  async changeAll(find, text) {
    const { editor } = this;
    const [{ transcript, sentences }, places] = [editor, find()];
    if (!places.length) return;
    const { number } = sentences;
    const work = replacing(transcript, places, text);
    let [step, until] = [work.next(), performance.now() + AT_ONCE_MS];
    while (!step.done) {
      if (performance.now() > until) {
        await new Promise((resume) => setTimeout(resume));
        if (sentences.number !== number) return; // another transcript was opened
        if (editor.transcript !== transcript) return this.changeAll(find, text);
        until = performance.now() + AT_ONCE_MS;
      }
      step = work.next();
    }
    editor.apply(step.value);
    sentences.translateAgain();
    this.reveal();
  }

  /** Offer to make a correction everywhere. @param {{from: string, to: string} | null} correction */
  offered(correction) {
    const places = correction ? exactOccurrences(this.editor.transcript, correction.from) : [];
    this.offer.hidden = !places.length;
    if (!correction || !places.length) return;
    const said = plural(places.length, "“{text}” occurs once more.", "“{text}” occurs {count} more times.", { text: correction.from });
    const yes = make("button", { type: "button", class: "ea-quiet" }, t("Replace by “{text}”", { text: correction.to }));
    const no = make("button", { type: "button", class: "ea-quiet" }, t("Leave"));
    yes.onclick = () => {
      this.offer.hidden = true;
      this.change(() => exactOccurrences(this.editor.transcript, correction.from), correction.to);
    };
    no.onclick = () => (this.offer.hidden = true);
    this.offer.replaceChildren(make("span", {}, said), yes, no);
  }
}

/** @param {string} type @param {string} label @returns {HTMLInputElement} */
function input(type, label) {
  return make("input", { type, "aria-label": label, placeholder: label, autocomplete: "off" });
}
