// A strip that says what a bundled model is good for, and gets a better one.

import { make, onPickerOptions, reloadPickerOptions, size } from "/edgeapp/static/parts.js";
import { ask, on, send } from "/edgeapp/static/session.js";
import { t } from "/edgeapp/static/texts.js";
import { toast } from "/edgeapp/static/toast.js";

/**
 * place: an empty element. It is filled while only bundled models do the tab's work.
 * better: the name of a better model.
 * modelsOf: the models that do the tab's work, of the picker's options.
 * advice: what the strip says where models can be got on this page.
 * asks: what it says elsewhere.
 * arrived: what is said when the better model is here.
 */
export class DemoStrip {
  constructor(place, { better, modelsOf, advice, asks, arrived }) {
    Object.assign(this, { place, better, advice, asks, arrived });
    this.text = make("p", {});
    this.bar = make("progress", { "aria-label": t("Download of {name}", { name: better }), max: 1, value: 0 });
    this.get = make("button", { type: "button", class: "ea-plain" }, t("Get {name}", { name: better }));
    this.cancel = make("button", { type: "button", class: "ea-quiet" }, t("Cancel"));
    this.get.onclick = () => this.begin();
    this.cancel.onclick = () => send({ type: "cancel", kind: "pull" });
    place.append(this.text, this.bar, this.get, this.cancel);
    onPickerOptions((options) => {
      const models = modelsOf(options);
      this.canChange = options.can_change;
      place.hidden = !models.length || models.some((model) => !model.bundled);
      if (!this.pulling) this.idle();
    });
    on("pull_progress", ({ name, done, total }) => name === better && this.progress(done, total));
    on("pull_done", ({ name }) => this.pulling && this.done(name));
    on("error", ({ kind, message }) => kind === "pull" && this.pulling && this.idle(message));
    on("idle", ({ kind }) => {
      if (kind === "pull" && this.pulling) this.idle(t("Stopped; it resumes next time."));
    });
    on("lost", () => this.pulling && this.idle(t("The connection was lost; the download resumes next time.")));
  }

  idle(note = "") {
    this.pulling = false;
    this.text.textContent = note || (this.canChange ? this.advice : this.asks);
    this.show();
  }

  show() {
    this.bar.hidden = this.cancel.hidden = !this.pulling;
    this.get.hidden = this.pulling || !this.canChange;
  }

  async begin() {
    this.pulling = true;
    this.text.textContent = t("Asking the hub for {name}…", { name: this.better });
    this.show();
    try {
      const { missing } = await ask({ type: "plan", name: this.better });
      this.progress(0, missing);
      send({ type: "pull", name: this.better });
    } catch (error) {
      this.idle(error.message);
    }
  }

  progress(done, total) {
    this.pulling = true;
    this.bar.max = total || 1;
    this.bar.value = done;
    this.text.textContent = t("Getting {name}: {done} of {total}", { name: this.better, done: size(done), total: size(total) });
    this.show();
  }

  done() {
    this.pulling = false;
    toast(this.arrived);
    reloadPickerOptions();
  }
}
