// Several recordings, one after the other: their list with states, and all transcripts as one zip.

import { clock, make } from "/edgeapp/static/elements.js";
import { download, problem } from "/edgeapp/static/parts.js";

const LABELS = { waiting: "Waiting", working: "", done: "Done", failed: "Failed", cancelled: "Cancelled" };
const NEXT_MS = 300;
const ZIP_FORMATS = ["txt", "srt", "json"];

/** @typedef {{file: File, state: string, note: string, kept: any, row: HTMLElement}} Item kept: what
 *   `keep` of the tab gave for it. */

/** What the queue asks of the File tab.
 * @typedef {{begin: (file: File) => void, working: boolean, keep: () => any,
 *   show: (kept: any) => void, transcript: (kept: any) => object}} Work */

export class Queue {
  /** @param {HTMLElement} root The tab's element. @param {Work} work */
  constructor(root, work) {
    this.root = root;
    this.work = work;
    this.place = root.querySelector(".ea-queue");
    this.list = this.place.querySelector("ol");
    this.says = this.place.querySelector(".ea-queue-says");
    this.zip = this.place.querySelector(".ea-zip");
    /** @type {Item[]} */
    this.items = [];
    /** @type {Item | null} The one that is worked on, or shown. */
    this.current = null;
    this.zip.onclick = () => this.save();
    this.update();
  }

  /** @param {File[]} files Their work begins, or they wait. */
  add(files) {
    // A single recording after a single one is no queue.
    if (this.items.length < 2 && !this.work.working) this.items = [];
    for (const file of files) {
      this.items.push({ file, state: "waiting", note: "", kept: null, row: make("li", {}) });
    }
    if (this.work.working) this.update();
    else this.next();
  }

  next() {
    const item = this.items.find(({ state }) => state === "waiting");
    if (item) this.begin(item);
    else this.update();
  }

  begin(item) {
    this.leave();
    this.current = item;
    item.state = "working";
    item.note = "";
    this.began = performance.now();
    this.work.begin(item.file);
    this.update();
  }

  /** How far the current recording is. @param {string} text */
  note(text) {
    if (this.current?.state !== "working" || this.current.note === text) return;
    this.current.note = text;
    this.draw(this.current);
  }

  /** The work on the current recording has ended.
   * @param {"done" | "failed" | "cancelled"} state @param {string} note */
  ended(state, note = "") {
    const item = this.current;
    if (item?.state !== "working") return;
    Object.assign(item, { state, note, kept: this.work.keep() });
    this.update();
    // Not at once: the task that has ended tells the rest first.
    if (this.items.some((other) => other.state === "waiting")) {
      setTimeout(() => this.work.working || this.next(), NEXT_MS);
    }
  }

  /** Keep what was corrected in the recording that is shown. */
  leave() {
    if (this.current && this.current.state !== "working") this.current.kept = this.work.keep();
  }

  /** Nothing is shown any more. A queue stays until all of it was done. */
  reset() {
    this.leave();
    this.current = null;
    if (!this.items.some(({ state }) => state === "waiting" || state === "failed")) this.items = [];
    this.update();
  }

  open(item) {
    if (this.work.working || item === this.current) return;
    this.leave();
    this.current = item;
    this.update();
    this.work.show(item.kept);
  }

  again(item) {
    item.state = "waiting";
    if (this.work.working) this.draw(item);
    else this.begin(item);
  }

  remove(item) {
    this.items = this.items.filter((other) => other !== item);
    this.update();
  }

  update() {
    this.place.hidden = this.items.length < 2;
    this.list.replaceChildren(...this.items.map(({ row }) => row));
    for (const item of this.items) this.draw(item);
    const done = this.items.filter(({ state }) => state === "done");
    this.says.textContent = `${done.length} of ${this.items.length} done${this.left(done)}`;
    this.zip.hidden = done.length < 2;
  }

  /** About how long the rest takes, from the sizes of what is done. @param {Item[]} done */
  left(done) {
    const rest = this.items.filter(({ state }) => state === "waiting" || state === "working");
    const seconds = done.reduce((sum, { kept }) => sum + kept.took, 0);
    const bytes = (items) => items.reduce((sum, { file }) => sum + file.size, 0);
    if (!rest.length || !seconds) return "";
    return `, about ${clock((seconds * bytes(rest)) / Math.max(1, bytes(done)) + 0.9)} left`;
  }

  /** Seconds since the current work began. */
  get took() {
    return (performance.now() - this.began) / 1000;
  }

  draw(item) {
    const name = make("button", { type: "button", class: "ea-queued" }, item.file.name);
    name.disabled = !item.kept || this.work.working;
    name.onclick = () => this.open(item);
    name.setAttribute("aria-current", String(item === this.current));
    const state = make("span", { class: "ea-facts" }, item.note || LABELS[item.state]);
    const act = (label, action) => {
      const button = make("button", { type: "button", class: "ea-quiet" }, label);
      button.setAttribute("aria-label", `${label}: ${item.file.name}`);
      button.onclick = action;
      return button;
    };
    const acts = [];
    if (item.state === "failed" || item.state === "cancelled") acts.push(act("Try again", () => this.again(item)));
    if (item.state === "waiting") acts.push(act("Remove", () => this.remove(item)));
    item.row.dataset.state = item.state;
    item.row.replaceChildren(name, state, ...acts);
  }

  /** All transcripts that are done, in one file. */
  async save() {
    this.leave();
    const done = this.items.filter(({ state }) => state === "done");
    const files = done.map(({ file, kept }) => ({ name: file.name, ...this.work.transcript(kept) }));
    const body = JSON.stringify({ format: "zip", formats: ZIP_FORMATS, files });
    try {
      const reply = await fetch("/edgeapp/export", { method: "POST", body });
      if (!reply.ok) throw new Error((await reply.json()).error);
      download("transcripts.zip", await reply.blob());
    } catch (error) {
      problem(this.root, error.message);
    }
  }
}
