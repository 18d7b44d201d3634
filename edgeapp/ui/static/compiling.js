// While the first start on this machine compiles, the page says so.

import { make } from "/edgeapp/static/elements.js";
import { ask, on } from "/edgeapp/static/session.js";
import { t } from "/edgeapp/static/texts.js";

const AGAIN_MS = 1500;

/** @param {HTMLElement} main Where the note goes. */
export function sayCompiling(main) {
  const text = t("EdgeApp compiles for this machine, at the first start only: 20 seconds, minutes beside other work.");
  const note = make("p", { class: "ea-compiling", role: "status", hidden: true }, text);
  main.append(note);
  const check = async () => {
    const { compiling, ...progress } = await ask({ type: "ping" }).catch(() => ({ compiling: false }));
    note.textContent = progress.total
      ? t("EdgeApp compiles for this machine, at the first start only: {done} of {total} parts are ready.", progress)
      : text;
    note.hidden = !compiling;
    if (compiling) setTimeout(check, AGAIN_MS);
  };
  on("hello", check);
}
