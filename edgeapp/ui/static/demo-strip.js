// A strip that says what a bundled model is good for, and gets a better one.

import { DownloadOffer, onDownload } from "/edgeapp/static/download.js";
import { onPickerOptions } from "/edgeapp/static/parts.js";
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
    const label = t("Get {name}", { name: better });
    const offer = new DownloadOffer(better, label, (allowed) => (allowed ? advice : asks));
    place.append(...offer.elements);
    onPickerOptions((options) => {
      const models = modelsOf(options);
      place.hidden = !models.length || models.some((model) => !model.bundled);
      offer.allow(options.can_change);
    });
    onDownload(({ state, name }) => state === "done" && name === better && !place.hidden && toast(arrived));
  }
}
