// A tab to which files are given: one after the other they are uploaded, worked on by the server, and
// shown. The tabs File and Pictures say what is their own.

import { onDrop } from "/edgeapp/static/dropped.js";
import { picked, problem, remember } from "/edgeapp/static/parts.js";
import { hello, keeps, on, send } from "/edgeapp/static/session.js";
import { fromServer, t } from "/edgeapp/static/texts.js";

const MB = 1 << 20;
const AGAIN_MS = 600;

/**
 * @typedef {object} Kind
 * @property {"file" | "picture"} task of the server
 * @property {"file" | "pictures"} tab that takes files of this kind
 * @property {string} working what is said while the server works
 * @property {string} lost what is said if the connection is lost meanwhile
 */

/**
 * The base of such a tab. A subclass sets `queue`, calls `listen`, and has, beside what its queue asks:
 * `prepare(file, choice)` shows a file that the work begins on; `settle(cancelled)` removes what is
 * unfinished when the work has ended, and shows a status.
 */
export class QueuedTab {
  /** @param {HTMLElement} root The tab's element. @param {Kind} kind */
  constructor(root, kind) {
    this.root = root;
    this.kind = kind;
    this.find = (selector) => root.querySelector(selector);
    this.complete = false;
    this.number = 0; // of the file that is worked on, which all messages about it carry
    this.waiting = false; // until files can be worked on: nothing is at the server yet
  }

  /** Where files are uploaded to, and their limit in MB. @param {any} server its hello */
  upload(server) {
    return { token: server.session, megabytes: server.limits.megabytes };
  }

  /** Wait until files can be worked on. */
  async able() {}

  /** Further fields of the request. */
  fields() {
    return {};
  }

  listen() {
    const { task, tab } = this.kind;
    remember(this.root, `ea-${tab}-choice`);
    onDrop((files) => this.queue.add(files), tab);
    const chosen = this.find(".ea-drop input");
    chosen.onchange = () => {
      this.queue.add([...chosen.files]);
      chosen.value = "";
    };
    this.find(".ea-cancel").onclick = () => this.cancel();
    this.find(".ea-again").onclick = () => this.reset();
    this.during("error", ({ kind, message }) => kind === task && this.failed(message));
    this.during("idle", ({ kind, cancelled }) => kind === task && this.ended(cancelled));
    on("lost", () => this.working && !this.waiting && this.failed(this.kind.lost));
  }

  /** As `on`, for the file that is worked on. What the server still sends about another one, which was
   * cancelled or has failed, is ignored. */
  during(type, listener) {
    on(type, (message) => this.worksOn(message.number) && listener(message));
  }

  /** Whether the file of this number is still worked on. @param {number} number */
  worksOn(number) {
    return this.working && number === this.number;
  }

  get working() {
    return this.root.dataset.state === "working";
  }

  /** @param {"empty" | "working" | "done"} name */
  state(name) {
    this.root.dataset.state = name;
    const empty = name === "empty";
    this.find(".ea-drop").hidden = !empty;
    this.find(".ea-work").hidden = empty;
    this.find(".ea-cancel").hidden = name !== "working";
    // Shown late: it takes the place of Cancel, which may still be double-clicked.
    this.find(".ea-again").hidden = true;
    clearTimeout(this.soon);
    const again = () => (this.find(".ea-again").hidden = false);
    if (name === "done") this.soon = setTimeout(again, AGAIN_MS);
  }

  /** @param {string} text @param {number | null} left seconds until the file is done, if known */
  status(text, left = null) {
    this.find(".ea-left").textContent = text;
    this.queue.note(text, left);
  }

  async begin(file) {
    const number = ++this.number;
    this.complete = false;
    this.prepare(file, picked(this.root));
    this.state("working");
    this.waiting = true;
    await this.able();
    this.waiting = false;
    if (!this.worksOn(number)) return;
    const choice = picked(this.root);
    this.status(t("Uploading"));
    const server = hello();
    try {
      if (!server) throw new Error(t("Not connected to EdgeApp yet; try again."));
      const { token, megabytes } = this.upload(server);
      if (file.size > megabytes * MB) {
        throw new Error(t("{name} is larger than the limit of {size} MB.", { name: file.name, size: megabytes }));
      }
      this.sending = new AbortController();
      const { signal } = this.sending;
      const reply = await fetch(`/edgeapp/upload/${token}`, { method: "PUT", body: file, signal });
      if (!reply.ok) throw new Error(fromServer((await reply.json()).error));
      if (!this.worksOn(number)) return;
      this.status(this.kind.working);
      send({ type: this.kind.task, number, name: file.name, keep: keeps(), ...this.fields(), ...choice });
    } catch (error) {
      if (this.worksOn(number)) this.failed(error.message);
    }
  }

  cancel() {
    this.sending?.abort();
    send({ type: "cancel", kind: this.kind.task });
    this.ended(true);
  }

  ended(cancelled) {
    if (!this.working) return;
    this.settle(cancelled);
    this.state("done");
    this.queue.ended(this.complete ? "done" : "cancelled");
  }

  failed(message) {
    problem(this.root, message);
    this.status("");
    this.state("done");
    this.queue.ended("failed", message);
  }

  /** Show no file any more. */
  reset() {
    this.queue.reset();
    problem(this.root, "");
    this.state("empty");
    this.find(".ea-drop input").focus();
  }
}
