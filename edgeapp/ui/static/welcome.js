// The first screen of the Live tab: a sample to try, a test of the microphone, a target language.

import { chooseMicrophone, chosenMicrophone, microphones, openMicrophone } from "/edgeapp/static/microphone.js";
import { fill, problem } from "/edgeapp/static/parts.js";
import { t } from "/edgeapp/static/texts.js";
import { Wave } from "/edgeapp/static/wave.js";

const HEARD = 0.02; // peak level of speech, 0 to 1
const SILENT_MS = 4000;

/** root: the tab's element. sample: called to start with the bundled sample. */
export class Welcome {
  constructor(root, sample) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.wave = new Wave(this.find(".ea-test-wave"));
    this.find(".ea-sample").onclick = sample;
    this.find(".ea-test").onclick = () => (this.microphone ? this.end() : this.test());
    const target = this.find("[name=target]");
    this.into = this.find("[name=into]");
    this.into.onchange = () => {
      target.value = this.into.value;
      target.dispatchEvent(new Event("change"));
    };
    this.find("[name=input]").onchange = (event) => {
      chooseMicrophone(event.target.value);
      this.end().then(() => this.test());
    };
  }

  /** Show the target languages that are offered. */
  update() {
    const target = this.find("[name=target]");
    fill(this.into, [...target.options].map(({ value, label }) => [value, value ? label : t("No translation")]));
    this.into.value = target.value;
  }

  async test() {
    problem(this.root, "");
    let heard = false;
    const say = (text) => {
      const place = this.find(".ea-test-says");
      if (place.textContent !== text) place.textContent = text;
    };
    try {
      this.microphone = await openMicrophone((_, peak) => {
        this.wave.add(peak);
        heard ||= peak > HEARD;
        if (heard) say(t("The microphone works."));
      });
    } catch (error) {
      return problem(this.root, error.message);
    }
    const found = await microphones();
    fill(this.find("[name=input]"), found.map(({ id, label }) => [id, label]));
    const current = found.find(({ id }) => id === chosenMicrophone());
    if (current) this.find("[name=input]").value = current.id;
    this.find(".ea-testing").hidden = false;
    this.find(".ea-test").textContent = t("End the test");
    say(t("Say something."));
    this.quiet = setTimeout(() => heard || say(t("Nothing is heard: choose another microphone, or turn it up.")), SILENT_MS);
  }

  async end() {
    clearTimeout(this.quiet);
    const { microphone } = this;
    this.microphone = null;
    this.find(".ea-testing").hidden = true;
    this.find(".ea-test").textContent = t("Test the microphone");
    await microphone?.close();
    this.wave.clear();
  }
}
