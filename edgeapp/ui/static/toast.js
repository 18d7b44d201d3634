// Short messages at the edge of the screen.

import { make } from "/edgeapp/static/parts.js";
import { t } from "/edgeapp/static/texts.js";

const SHOWN_MS = 6000;

/** Show a short message for 6 s, or 12 s with a button "Undo" that calls `undo`. */
export function toast(text, undo = null) {
  const place =
    document.querySelector(".ea-toasts") ??
    document.querySelector(".gradio-container main").appendChild(make("div", { class: "ea-toasts", role: "status" }));
  for (const other of [...place.children]) {
    if (!undo && other.textContent === text) other.remove(); // said once is enough
  }
  const shown = make("p", {}, text);
  if (undo) {
    const button = make("button", { type: "button" }, t("Undo"));
    button.onclick = () => {
      shown.remove();
      undo();
    };
    shown.append(button);
  }
  place.append(shown);
  setTimeout(() => shown.remove(), undo ? 2 * SHOWN_MS : SHOWN_MS);
}
