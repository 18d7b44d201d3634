// A strip that says what the bundled recognizer is good for, and gets a better one.

import { make, onPickerOptions, reloadPickerOptions, size } from "/edgeapp/static/parts.js";
import { ask, on, send } from "/edgeapp/static/session.js";
import { toast } from "/edgeapp/static/toast.js";

const BETTER = "base"; // small, of many languages, and made for people's voices

/** place: an empty element. It is filled while only bundled recognizers are there. */
export class DemoStrip {
  constructor(place) {
    this.place = place;
    this.text = make("p", {});
    this.bar = make("progress", { "aria-label": `Download of ${BETTER}`, max: 1, value: 0 });
    this.get = make("button", { type: "button", class: "ea-plain" }, `Get ${BETTER}`);
    this.cancel = make("button", { type: "button", class: "ea-quiet" }, "Cancel");
    this.get.onclick = () => this.begin();
    this.cancel.onclick = () => send({ type: "cancel", kind: "pull" });
    place.append(this.text, this.bar, this.get, this.cancel);
    onPickerOptions(({ recognizers, can_change: canChange }) => {
      this.canChange = canChange;
      place.hidden = !recognizers.length || recognizers.some((model) => !model.bundled);
      if (!this.pulling) this.idle();
    });
    on("pull_progress", ({ name, done, total }) => name === BETTER && this.progress(done, total));
    on("pull_done", ({ name }) => this.pulling && this.done(name));
    on("error", ({ kind, message }) => kind === "pull" && this.pulling && this.idle(message));
    on("idle", ({ kind }) => {
      if (kind === "pull" && this.pulling) this.idle("Stopped; it resumes next time.");
    });
    on("lost", () => this.pulling && this.idle("The connection was lost; the download resumes next time."));
  }

  idle(note = "") {
    this.pulling = false;
    const advice = this.canChange ? `For people, get ${BETTER}.` : "For people, ask the owner of this machine for a larger model.";
    this.text.textContent = note || `Demo model: synthetic English voices only. ${advice}`;
    this.show();
  }

  show() {
    this.bar.hidden = this.cancel.hidden = !this.pulling;
    this.get.hidden = this.pulling || !this.canChange;
  }

  async begin() {
    this.pulling = true;
    this.text.textContent = `Asking the hub for ${BETTER}…`;
    this.show();
    try {
      const { missing } = await ask({ type: "plan", name: BETTER });
      this.progress(0, missing);
      send({ type: "pull", name: BETTER });
    } catch (error) {
      this.idle(error.message);
    }
  }

  progress(done, total) {
    this.pulling = true;
    this.bar.max = total || 1;
    this.bar.value = done;
    this.text.textContent = `Getting ${BETTER}: ${size(done)} of ${size(total)}`;
    this.show();
  }

  done() {
    this.pulling = false;
    toast(`${BETTER} is here. It is used from the next Start on.`);
    reloadPickerOptions();
  }
}
