// @ts-check
// The buttons above a transcript. They work on the row that has the caret, or had it last.

import { make } from "/edgeapp/static/parts.js";

/** @param {import("./editor.js").Editor} editor */
export function toolbar(editor) {
  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) => {
    const made = make("button", { type: "button", class: "ea-quiet", title: label }, text);
    // The caret stays where it is.
    made.onmousedown = (/** @type {Event} */ event) => event.preventDefault();
    made.onclick = act;
    return made;
  };
  const undo = button("Undo", "Undo (Ctrl+Z)", () => editor.undo());
  const redo = button("Redo", "Redo (Ctrl+Shift+Z)", () => editor.redo());
  const ofRow = [
    button("Split", "Split the line at the caret (Enter)", () => editor.divide()),
    button("Merge", "Merge the line with the next one", () => editor.join()),
    button("Start −", "The line starts 0.1 s earlier", () => editor.nudge("start", -1)),
    button("Start +", "The line starts 0.1 s later", () => editor.nudge("start", 1)),
    button("End −", "The line ends 0.1 s earlier", () => editor.nudge("end", -1)),
    button("End +", "The line ends 0.1 s later", () => editor.nudge("end", 1)),
  ];
  const find = button("Find", "Find and replace (Ctrl+F)", () => editor.finder.open());
  const doubt = button("Doubtful words", "Play the least certain word. Then: Tab the next, Enter accepts, Escape ends", () => {
    editor.doubts.next();
    update();
  });
  const element = make("div", { class: "ea-toolbar", role: "toolbar", "aria-label": "Editing" });
  element.append(undo, redo, ...ofRow, find, doubt);

  function update() {
    undo.disabled = !editor.stack.past.length;
    redo.disabled = !editor.stack.future.length;
    for (const each of ofRow) each.disabled = !editor.row(editor.current);
    const count = editor.doubts.all.length;
    doubt.textContent = editor.doubts.active ? `Tab: next · Enter: right · ${count} left` : `Doubtful words ${count}`;
    doubt.disabled = !count;
  }
  return { element, update };
}
