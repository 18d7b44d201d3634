// @ts-check
// Stores the corrections of a transcript in its record of the history, soon after they are made.

import { ask, on } from "/edgeapp/static/session.js";
import { t } from "/edgeapp/static/texts.js";

const SAVE_MS = 600;

export class Saver {
  /**
   * @param {() => {cues: object[], translation: object[]}} texts
   * @param {(text: string) => void} status shows a short message
   */
  constructor(texts, status) {
    this.texts = texts;
    this.status = status;
    /** @type {number | null} */
    this.record = null;
    this.edited = false;
    this.held = false; // while the record is still written by the server
    this.soon = 0;
    on("hello", () => this.keep());
    addEventListener("pagehide", () => this.keep());
  }

  /** The record that is edited from now on; null: none. What was edited before is stored first.
   * @param {number | null} record @param {boolean} [held] until `release` */
  open(record, held = false) {
    this.keep();
    this.record = record;
    this.edited = false;
    this.held = held;
  }

  /** A correction was made. */
  changed() {
    this.edited = true;
    clearTimeout(this.soon);
    if (!this.held) this.soon = window.setTimeout(() => this.keep(), SAVE_MS);
  }

  /** The server has written the record. */
  release() {
    this.held = false;
    this.keep();
  }

  /** Store the corrections now. */
  async keep() {
    const { record } = this;
    if (!this.edited || this.held || record === null) return;
    clearTimeout(this.soon);
    this.edited = false;
    const { cues, translation } = this.texts();
    const short = (/** @type {any} */ { start, end, text, words, speaker }) => ({ start, end, text, words, speaker });
    try {
      const { done } = await ask({ type: "edit", record, cues: cues.map(short), translation });
      if (record === this.record) this.status(done ? t("Saved.") : t("This session was deleted; corrections are not saved."));
    } catch {
      // Not connected: it is stored after the next correction or connection.
      if (record === this.record) this.edited = true;
    }
  }
}
