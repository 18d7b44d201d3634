// @ts-check
// The states of a value that is edited, to go back to and forward again.

const MOST = 500;

/** @template T */
export class UndoStack {
  /** @param {T} value */
  constructor(value) {
    /** @type {T[]} */
    this.past = [];
    /** @type {T[]} */
    this.future = [];
    this.value = value;
    this.last = ""; // kind of the last state
  }

  /** Forget all states. @param {T} value */
  reset(value) {
    this.past = [];
    this.future = [];
    this.value = value;
    this.last = "";
  }

  /**
   * A new state.
   * @param {T} value
   * @param {string} [kind] states of the same kind in a row are one step, as letters of a word
   */
  push(value, kind = "") {
    if (value === this.value) return;
    if (!kind || kind !== this.last) this.past.push(this.value);
    if (this.past.length > MOST) this.past.shift();
    this.last = kind;
    this.value = value;
    this.future = [];
  }

  /** The next state begins a step of its own. */
  pause() {
    this.last = "";
  }

  /** A state that belongs to the step before, as a translation that arrives later. @param {T} value */
  amend(value) {
    this.value = value;
  }

  /** @returns {boolean} whether there was a step to undo */
  undo() {
    const value = this.past.pop();
    if (value === undefined) return false;
    this.future.push(this.value);
    this.value = value;
    this.last = "";
    return true;
  }

  /** @returns {boolean} whether there was a step to do again */
  redo() {
    const value = this.future.pop();
    if (value === undefined) return false;
    this.past.push(this.value);
    this.value = value;
    this.last = "";
    return true;
  }
}
