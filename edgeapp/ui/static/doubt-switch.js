// @ts-check
// The switch for the marks under words of a translation of which the model is in doubt: one choice
// for all tabs, kept in this browser.

const STORE = "ea-doubts"; // in localStorage

/** Whether doubts are marked. */
export const marksDoubts = () => localStorage.getItem(STORE) !== "no";

/** @param {HTMLElement} button @param {() => void} changed called when another choice was made */
export function doubtSwitch(button, changed) {
  const show = () => button.setAttribute("aria-pressed", String(marksDoubts()));
  button.onclick = () => {
    localStorage.setItem(STORE, marksDoubts() ? "no" : "yes");
    dispatchEvent(new Event("ea-doubts"));
  };
  addEventListener("ea-doubts", () => {
    show();
    changed();
  });
  show();
}
