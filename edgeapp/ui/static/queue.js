// Several recordings, one after the other: their list with states, and all transcripts as one zip.

import { clock, make } from "/edgeapp/static/elements.js";
import { download, problem } from "/edgeapp/static/parts.js";
import { fromServer, t } from "/edgeapp/static/texts.js";

const LABELS = { waiting: t("Waiting"), working: "", done: t("Done"), failed: t("Failed"), cancelled: t("Cancelled") };
const NEXT_MS = 300;
const ZIP_FORMATS = ["txt", "srt", "json"];

/** @typedef {{file: File, state: string, note: string, kept: any, took: number,
 *   left: number | null, row: HTMLElement}} Item
 *   kept: what `keep` of the tab gave for it. took, left: the work on it, in seconds. */

/** What the queue asks of its tab.
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
      this.items.push({ file, state: "waiting", note: "", kept: null, took: 0, left: null, row: make("li", {}) });
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
    Object.assign(item, { state: "working", note: "", left: null });
    this.began = performance.now();
    this.work.begin(item.file);
    this.update();
  }

  /** How far the current recording is.
   * @param {string} text @param {number | null} left seconds until it is done, if known */
  note(text, left) {
    if (this.current?.state !== "working" || this.current.note === text) return;
    Object.assign(this.current, { note: text, left });
    this.draw(this.current);
    this.say();
  }

  /** The work on the current recording has ended.
   * @param {"done" | "failed" | "cancelled"} state @param {string} note */
  ended(state, note = "") {
    const item = this.current;
    if (item?.state !== "working") return;
    const took = (performance.now() - this.began) / 1000;
    Object.assign(item, { state, note, took, kept: this.work.keep() });
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
    this.say();
  }

  /** How many are done, and about how long the rest takes. */
  say() {
    const done = this.items.filter(({ state }) => state === "done");
    const far = t("{done} of {total} done", { done: done.length, total: this.items.length });
    // Not in the part that screen readers say: it changes every second.
    this.place.querySelector(".ea-queue-left").textContent = this.left(done);
    if (this.says.textContent !== far) this.says.textContent = far;
    this.zip.hidden = done.length < 2;
  }

  /** About how long the rest takes: as the current one says, and by the sizes of what is done.
   * @param {Item[]} done */
  left(done) {
    const working = this.items.find(({ state }) => state === "working");
    const known = working?.left ?? null;
    const rest = this.items.filter((item) => item.state === "waiting" || (item === working && known === null));
    const took = done.reduce((sum, item) => sum + item.took, 0);
    const bytes = (items) => items.reduce((sum, { file }) => sum + file.size, 0);
    if (rest.length ? !took : known === null) return "";
    const guessed = (took * bytes(rest)) / Math.max(1, bytes(done));
    return t("about {time} left", { time: clock(guessed + (known ?? 0) + 0.9) });
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
    if (item.state === "failed" || item.state === "cancelled") acts.push(act(t("Try again"), () => this.again(item)));
    if (item.state === "waiting") acts.push(act(t("Remove"), () => this.remove(item)));
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
      if (!reply.ok) throw new Error(fromServer((await reply.json()).error));
      download("transcripts.zip", await reply.blob());
    } catch (error) {
      problem(this.root, error.message);
    }
  }
}
