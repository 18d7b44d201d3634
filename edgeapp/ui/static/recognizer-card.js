// A card on the tabs that recognize speech, while no recognizer for people's voices is here.

import { DownloadOffer } from "/edgeapp/static/download.js";
import { make, onPickerOptions, reloadPickerOptions, size } from "/edgeapp/static/parts.js";
import { ask } from "/edgeapp/static/session.js";
import { fromServer, t } from "/edgeapp/static/texts.js";

const AGAIN_MS = 5000;

export class RecognizerCard {
  /** root: the tab's element, with an empty .ea-need. waiting: what the card says while the tab waits
   * for the recognizer. */
  constructor(root, waiting) {
    this.root = root;
    this.place = root.querySelector(".ea-need");
    this.waiting = make("p", { class: "ea-need-waits", hidden: true }, waiting);
    this.offer = null;
    this.waits = []; // called when a recognizer can be used
    onPickerOptions((options) => this.update(options));
    // It may also be downloaded on the command line.
    setInterval(() => this.shown && !document.hidden && this.look(), AGAIN_MS);
  }

  /** Whether it can be seen. */
  get shown() {
    return this.place.offsetParent !== null;
  }

  /** Whether the tab's choice needs a recognizer that is not here. A bundled one is used where the
   * settings or the picker name it. */
  get lacking() {
    const { recommended, automatic } = this.options ?? {};
    return Boolean(recommended && !automatic.length && !this.root.querySelector("[name=model]").value);
  }

  update(options) {
    this.options = options;
    const { recommended, can_change: allowed } = options;
    if (recommended && !this.offer) this.fill(recommended);
    if (recommended) {
      this.offer.allow(allowed);
      const facts = t("{model}. It is downloaded once, to this machine; {free} are free.", {
        model: fromServer(recommended.words),
        free: size(recommended.free),
      });
      this.facts.textContent = facts;
    }
    this.place.hidden = !recommended;
    // After the tab's own listeners, which fill its pickers.
    setTimeout(() => {
      if (this.lacking) return;
      for (const act of this.waits.splice(0)) act();
      this.waiting.hidden = true;
    });
  }

  fill({ name, command }) {
    const asks = t("Ask the owner of this machine to download it: {command}", { command: command.replaceAll("`", "") });
    this.offer = new DownloadOffer(name, t("Download"), (allowed) => (allowed ? "" : asks));
    this.facts = make("p", { class: "ea-need-facts" });
    const title = make("h2", {}, t("A model for people's voices is needed"));
    this.place.append(title, this.facts, ...this.offer.elements, this.waiting);
  }

  /** Call `act` as soon as a recognizer can be used. Returns a function that takes it back. */
  wait(act) {
    this.waits.push(act);
    this.waiting.hidden = false;
    this.place.scrollIntoView({ block: "nearest" });
    if (!this.offer.get.hidden) this.offer.get.focus();
    return () => {
      this.waits = this.waits.filter((other) => other !== act);
      this.waiting.hidden = !this.waits.length;
    };
  }

  async look() {
    const options = await ask({ type: "picker_options" }).catch(() => null);
    if (options && !options.recommended) reloadPickerOptions();
  }
}
