// Files that are dropped anywhere on the page land in the File tab, pictures in the Pictures tab.

import { t } from "/edgeapp/static/texts.js";

/** @typedef {"file" | "pictures"} Tab */

/** @type {Record<Tab, File[]>} */
const waiting = { file: [], pictures: [] };
/** @type {Partial<Record<Tab, (files: File[]) => void>>} */
const takers = {};

/** Call `take` with files that are dropped, also with those that were dropped before.
 * @param {(files: File[]) => void} take @param {Tab} tab */
export function onDrop(take, tab = "file") {
  takers[tab] = take;
  const files = waiting[tab];
  waiting[tab] = [];
  if (files.length) take(files);
}

/** @param {DragEvent} event */
const hasFiles = (event) => Boolean(event.dataTransfer?.types.includes("Files"));

/** Whether the place takes files itself. @param {DragEvent} event */
const taken = (event) => event.defaultPrevented || Boolean(event.target instanceof Element && event.target.closest("textarea"));

/** The tab for files. @param {{type: string}[]} files @returns {Tab} */
function tabFor(files) {
  const pictures = files.length > 0 && files.every(({ type }) => type.startsWith("image/"));
  return pictures ? "pictures" : "file";
}

/** What a drop will do. Safari says only then what is dropped. @param {DragEvent} event */
function offer(event) {
  const files = [...(event.dataTransfer?.items ?? [])].filter(({ kind }) => kind === "file");
  if (!files.length) return t("Drop here");
  return tabFor(files) === "pictures" ? t("Drop to read the text") : t("Drop to transcribe");
}

/** @param {(tab: Tab) => void} open Opens a tab. */
export function catchDrops(open) {
  const over = (on) => (document.body.dataset.dropping = on ? "yes" : "no");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event) || taken(event)) return over(false);
    event.preventDefault();
    document.body.dataset.drop = offer(event);
    over(true);
  });
  addEventListener("dragleave", (event) => event.relatedTarget ?? over(false));
  addEventListener("drop", (event) => {
    over(false);
    if (!hasFiles(event) || taken(event)) return;
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    const tab = tabFor(files);
    open(tab);
    if (takers[tab]) takers[tab](files);
    else waiting[tab].push(...files);
  });
}
