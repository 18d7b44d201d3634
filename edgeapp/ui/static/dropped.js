// Files that are dropped anywhere on the page land in the File tab.

/** @type {File[]} */
let waiting = [];
/** @type {((files: File[]) => void) | null} */
let taker = null;

/** Call `take` with files that are dropped, also with those that were dropped before.
 * @param {(files: File[]) => void} take */
export function onDrop(take) {
  taker = take;
  const files = waiting;
  waiting = [];
  if (files.length) take(files);
}

/** @param {DragEvent} event */
const hasFiles = (event) => Boolean(event.dataTransfer?.types.includes("Files"));

/** Whether the place takes files itself. @param {DragEvent} event */
const taken = (event) => event.defaultPrevented || Boolean(event.target instanceof Element && event.target.closest("textarea"));

/** @param {() => void} open Opens the File tab. */
export function catchDrops(open) {
  const over = (on) => (document.body.dataset.dropping = on ? "yes" : "no");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event) || taken(event)) return over(false);
    event.preventDefault();
    over(true);
  });
  addEventListener("dragleave", (event) => event.relatedTarget ?? over(false));
  addEventListener("drop", (event) => {
    over(false);
    if (!hasFiles(event) || taken(event)) return;
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    open();
    if (taker) taker(files);
    else waiting.push(...files);
  });
}
