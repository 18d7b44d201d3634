// @ts-check
// The translation of a transcript: sentences whose text was corrected are translated again, and the
// words of both languages that belong together light up under the pointer.

import { ask } from "/edgeapp/static/session.js";
import { toast } from "/edgeapp/static/toast.js";
import { t } from "/edgeapp/static/texts.js";
import { Marks, offsetAtPoint, rangeIn } from "./marks.js";
import { outdated, sourceOf, withCueValues } from "./transcript.js";

/** @typedef {import("./words.js").Span} Span */

const DWELL_MS = 120;
const AT_ONCE = 100; // sentences of a request

export class Sentences {
  /** @param {import("./editor.js").Editor} editor */
  constructor(editor) {
    this.editor = editor;
    this.linked = new Marks("ea-linked");
    /** @type {{language: string | null, target: string | null}} */
    this.languages = { language: null, target: null };
    /** @type {Map<string, Promise<[Span, Span][]>>} by sentence and translation */
    this.links = new Map();
    this.soon = 0;
    this.number = 0;
    editor.list.addEventListener("pointermove", (event) => this.moved(event));
    editor.list.addEventListener("pointerleave", () => this.moved(null));
  }

  /** @param {{language: string | null, target: string | null}} languages */
  reset(languages) {
    this.languages = languages;
    this.links.clear();
    this.linked.set([]);
    this.number += 1;
  }

  /** Translate the sentences again whose text has changed. */
  async translateAgain() {
    const { language, target } = this.languages;
    if (!target || !language || language === target) return;
    const stale = outdated(this.editor.transcript);
    const { number } = this;
    for (let at = 0; at < stale.length; at += AT_ONCE) {
      const part = stale.slice(at, at + AT_ONCE);
      const sentences = part.map(({ source }) => source);
      try {
        const { translations, doubts } = await ask({ type: "translate_sentences", sentences, language, target });
        if (number !== this.number) return; // another transcript was opened
        this.put(new Map(sentences.map((sentence, i) => [sentence, { text: translations[i], doubts: doubts[i] }])));
      } catch (error) {
        const { message } = /** @type {Error} */ (error);
        toast(t("The corrected sentences are not translated again: {reason}", { reason: message }));
        return;
      }
    }
  }

  /** @param {Map<string, {text: string, doubts: Span[]}>} answers by sentence */
  put(answers) {
    let { transcript } = this.editor;
    // Those that have changed again since are asked for by that correction.
    for (const { index, source } of outdated(transcript)) {
      const answer = answers.get(source);
      if (answer) transcript = withCueValues(transcript, index, { ...answer, source });
    }
    this.editor.amend(transcript);
  }

  /** @param {PointerEvent | null} event */
  moved(event) {
    clearTimeout(this.soon);
    if (!this.languages.target || !this.languages.language) return;
    const target = /** @type {HTMLElement | null} */ (event?.target ?? null);
    const place = /** @type {HTMLElement | null} */ (target?.closest(".ea-said, .ea-cue") ?? null);
    if (!event || event.buttons || !place) return this.linked.set([]);
    const offset = offsetAtPoint(place, event.clientX, event.clientY);
    this.soon = window.setTimeout(() => this.light(place, offset), DWELL_MS);
  }

  /** Light the words that belong to the one at an offset. @param {HTMLElement} place @param {number} offset */
  async light(place, offset) {
    const { transcript } = this.editor;
    const id = Number(place.dataset.row);
    const cue = place.dataset.cue
      ? transcript.cues[Number(place.dataset.cue)]
      : transcript.cues.find((each) => each.rows.includes(id));
    if (!cue || offset < 0) return this.linked.set([]);
    const source = sourceOf(transcript, cue);
    const links = await this.ask(source, cue.text);
    if (transcript !== this.editor.transcript) return;
    /** @type {{said: HTMLElement, at: number}[]} the rows of the sentence, with their offsets in it */
    const parts = [];
    let at = 0;
    for (const row of transcript.rows.filter((each) => cue.rows.includes(each.id))) {
      const view = this.editor.view(row.id);
      if (view) parts.push({ said: view.said, at });
      at += row.text.length + 1;
    }
    const shown = this.editor.list.querySelector(`[data-cue="${transcript.cues.indexOf(cue)}"]`);
    const side = place.dataset.cue ? 1 : 0;
    const here = side ? offset : offset + (parts.find(({ said }) => said === place)?.at ?? 0);
    const own = links.filter((link) => link[side][0] <= here && here <= link[side][1]);
    const words = own.flatMap(([from, to]) => {
      const part = parts.findLast((each) => each.at <= from[0]);
      const left = part ? rangeIn(part.said, from[0] - part.at, from[1] - part.at) : null;
      return [left, shown ? rangeIn(shown, ...to) : null];
    });
    this.linked.set(words);
  }

  /** @param {string} text @param {string} translation @returns {Promise<[Span, Span][]>} */
  ask(text, translation) {
    const key = `${text}\n${translation}`;
    const known = this.links.get(key);
    if (known) return known;
    const asked = ask({ type: "align", text, translation, ...this.languages }).then(
      ({ links }) => links,
      () => [], // as of a sentence that is too long: no word is lit
    );
    this.links.set(key, asked);
    return asked;
  }
}
