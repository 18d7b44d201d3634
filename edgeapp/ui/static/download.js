// The download of a model. It is the server's: it goes on without this page, and all pages show it.

import { make, reloadPickerOptions, size } from "/edgeapp/static/parts.js";
import { on, send } from "/edgeapp/static/session.js";
import { t } from "/edgeapp/static/texts.js";

/** @typedef {{state: "none" | "running" | "done" | "failed" | "cancelled" | "refused", name?: string,
 *   done?: number, total?: number, note?: string, message?: string}} Download
 *   refused: this page's request, while another model may be downloaded */

const listeners = new Set();
let current = { state: "none" };
let asked = ""; // the name of the model that this page has asked for last

function tell(state) {
  const ended = current.state === "running" && state.state !== "running";
  current = state;
  for (const listener of listeners) listener(state);
  if (ended || state.state === "done") reloadPickerOptions();
}

on("download", tell);
on("hello", ({ download }) => tell(download ?? { state: "none" })); // it may have ended while the line was lost
on("error", ({ kind, message }) => {
  if (kind !== "pull") return;
  for (const listener of listeners) listener({ state: "refused", name: asked, message });
});

/** Call `listener` with each state of the download, and now if one is running.
 * @param {(state: Download) => void} listener */
export function onDownload(listener) {
  listeners.add(listener);
  if (current.state === "running") listener(current);
}

/** Let the server download a model. @param {string} name */
export function beginDownload(name) {
  asked = name;
  send({ type: "pull", name });
}

export const cancelDownload = () => send({ type: "cancel", kind: "pull" });

/** What offers a model and shows its download: a text, a bar, and two buttons.
 * name: of the model. label: of the button. idle: called for the text while nothing is downloaded. */
export class DownloadOffer {
  constructor(name, label, idle) {
    Object.assign(this, { name, idle, allowed: false, running: false });
    this.text = make("p", {});
    this.bar = make("progress", { "aria-label": t("Download of {name}", { name }), max: 1, value: 0 });
    this.get = make("button", { type: "button", class: "ea-plain" }, label);
    this.cancel = make("button", { type: "button", class: "ea-quiet" }, t("Cancel"));
    this.get.onclick = () => beginDownload(name);
    this.cancel.onclick = cancelDownload;
    this.show({ state: "none" });
    onDownload((state) => this.show(state));
  }

  get elements() {
    return [this.text, this.bar, this.get, this.cancel];
  }

  /** Whether this page may download models. */
  allow(allowed) {
    if (this.allowed === allowed) return;
    this.allowed = allowed;
    this.show(current);
  }

  /** @param {Download} state */
  show(state) {
    const { name, message = "", done = 0, total = 0 } = state;
    const own = name === this.name;
    const running = state.state === "running";
    this.running = own && running;
    const failed = own && (state.state === "failed" || state.state === "refused");
    this.bar.hidden = !this.running;
    this.get.hidden = this.running || !this.allowed;
    this.get.disabled = running; // the server downloads one model at a time
    this.cancel.hidden = !this.running || !this.allowed;
    this.text.classList.toggle("ea-wrong", failed);
    // Screen readers say the ends, not each number.
    this.text.setAttribute("aria-live", running ? "off" : "polite");
    if (this.running) {
      this.bar.max = total || 1;
      this.bar.value = done;
      this.text.textContent = total
        ? t("Getting {name}: {done} of {total}", { name, done: size(done), total: size(total) })
        : t("Asking the hub for {name}…", { name });
    } else if (failed) this.text.textContent = message;
    else if (own && state.state === "cancelled") this.text.textContent = t("Stopped; it resumes next time.");
    else if (running && this.allowed) this.text.textContent = t("{name} is being downloaded.", { name });
    else this.text.textContent = this.idle(this.allowed);
  }
}
