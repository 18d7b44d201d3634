// @ts-check
// The buttons above a transcript. They work on the row that has the caret, or had it last.

import { doubtSwitch } from "/edgeapp/static/doubt-switch.js";
import { make } from "/edgeapp/static/parts.js";
import { t } from "/edgeapp/static/texts.js";

/** @param {import("./editor.js").Editor} editor */
export function toolbar(editor) {
  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) => {
    const made = make("button", { type: "button", class: "ea-quiet", title: label }, text);
    // The caret stays where it is.
    made.onmousedown = (/** @type {Event} */ event) => event.preventDefault();
    made.onclick = act;
    return made;
  };
  const undo = button(t("Undo"), t("Undo (Ctrl+Z)"), () => editor.undo());
  const redo = button(t("Redo"), t("Redo (Ctrl+Shift+Z)"), () => editor.redo());
  const ofRow = [
    button(t("Split"), t("Split the line at the caret (Enter)"), () => editor.divide()),
    button(t("Merge"), t("Merge the line with the next one"), () => editor.join()),
    button(t("Start −"), t("The line starts 0.1 s earlier"), () => editor.nudge("start", -1)),
    button(t("Start +"), t("The line starts 0.1 s later"), () => editor.nudge("start", 1)),
    button(t("End −"), t("The line ends 0.1 s earlier"), () => editor.nudge("end", -1)),
    button(t("End +"), t("The line ends 0.1 s later"), () => editor.nudge("end", 1)),
  ];
  const find = button(t("Find"), t("Find and replace (Ctrl+F)"), () => editor.finder.open());
  const doubt = button(t("Doubtful words"), t("Play the least certain word. Then: Tab the next, Enter accepts, Escape ends"), () => {
    editor.doubts.next();
    update();
  });
  const marking = button(t("Doubts"), t("Mark the words of the translation of which the model is in doubt"), () => {});
  doubtSwitch(marking, () => editor.rows.views.forEach((view) => editor.cueDoubts.show(view)));
  const element = make("div", { class: "ea-toolbar", role: "toolbar", "aria-label": t("Editing") });
  element.append(undo, redo, ...ofRow, find, doubt, marking);

  function update() {
    undo.disabled = !editor.stack.past.length;
    redo.disabled = !editor.stack.future.length;
    for (const each of ofRow) each.disabled = !editor.row(editor.current);
    const count = editor.doubts.all.length;
    doubt.textContent = editor.doubts.active ? t("Tab: next · Enter: right · {count} left", { count }) : t("Doubtful words {count}", { count });
    doubt.disabled = !count;
    marking.hidden = !editor.transcript.cues.length;
  }
  return { element, update };
}
