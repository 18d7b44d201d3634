// @ts-check
// Stores the corrections of a transcript in its record of the history, soon after they are made: the
// rows that have changed since they were stored.

import { messagesBetween, storedRows } from "./changes.js";
import { ask, on } from "/edgeapp/static/session.js";
import { t } from "/edgeapp/static/texts.js";

/** @typedef {import("./changes.js").Texts} Texts */
/** @typedef {import("./changes.js").Stored} Stored */

const SAVE_MS = 600;

export class Saver {
  /**
   * @param {() => Texts} texts
   * @param {(text: string) => void} status shows a short message
   */
  constructor(texts, status) {
    this.texts = texts;
    this.status = status;
    /** What is edited; rows: as they are stored, null while that is not known.
     * @type {{record: number | null, rows: Stored | null}} */
    this.target = { record: null, rows: null };
    this.edited = false;
    this.held = false; // while the record is still written by the server
    this.soon = 0;
    this.saving = Promise.resolve(); // one after the other: the rows are counted
    on("hello", () => this.keep());
    addEventListener("pagehide", () => this.keep());
  }

  get record() {
    return this.target.record;
  }

  set record(record) {
    this.target.record = record;
  }

  /** The record that is edited from now on; null: none. What was edited before is stored first.
   * @param {number | null} record @param {boolean} [held] until `release`
   * @param {Texts | null} [texts] as they are stored, if that is known */
  open(record, held = false, texts = null) {
    this.keep();
    this.target = { record, rows: texts && storedRows(texts) };
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
  keep() {
    const { target } = this;
    if (!this.edited || this.held || target.record === null) return this.saving;
    clearTimeout(this.soon);
    this.edited = false;
    const rows = storedRows(this.texts());
    this.saving = this.saving.then(async () => {
      try {
        const done = await store(target, rows);
        if (target === this.target) this.status(done ? t("Saved.") : t("This session was deleted; corrections are not saved."));
      } catch {
        // Not connected: it is stored after the next correction or connection.
        target.rows = null;
        if (target === this.target) this.edited = true;
      }
    });
    return this.saving;
  }
}

/** Make the rows of a record these; false: it was deleted.
 * @param {{record: number | null, rows: Stored | null}} target @param {Stored} rows */
async function store(target, rows) {
  for (let attempt = 0; attempt < 3; attempt++) {
    // Without changes, the server says what is stored.
    const messages = target.rows ? messagesBetween(target.rows, rows) : [{ counts: null, changes: [] }];
    target.rows = null; // until all of them have arrived
    let other = null; // what is stored, where that differs
    for (const message of messages) {
      const { done, stored } = await ask({ type: "edit", record: target.record, ...message });
      if (!done) return false;
      if ((other = stored ?? null)) break;
    }
    target.rows = other ? storedRows(other) : rows;
    if (!other) return true;
  }
  throw new Error("another tab corrects this record, too");
}
