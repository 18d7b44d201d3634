// @ts-check
// Marks in texts, by the CSS Custom Highlight API: the texts themselves stay as they are, so that they
// can be edited. A browser without it shows no marks.

/** @type {Map<string, any>} name → Highlight */
const highlights = new Map();

/** @param {string} name */
function highlight(name) {
  if (!highlights.has(name)) {
    // @ts-ignore: not in all versions of TypeScript's DOM
    const made = new Highlight();
    highlights.set(name, made);
    // @ts-ignore
    CSS.highlights.set(name, made);
  }
  return highlights.get(name);
}

const supported = "highlights" in CSS;

/** Marks of one owner, replaced as a whole: as the word that is spoken, or the places found. */
export class Marks {
  /** @param {string} name of the ::highlight() in the style sheet */
  constructor(name) {
    this.name = name;
    /** @type {AbstractRange[]} */
    this.ranges = [];
  }

  /** @param {(AbstractRange | null)[]} ranges */
  set(ranges) {
    if (!supported) return;
    const all = highlight(this.name);
    for (const range of this.ranges) all.delete(range);
    this.ranges = ranges.filter((range) => range !== null);
    for (const range of this.ranges) all.add(range);
  }
}

/**
 * The range of a passage of an element's text; null if it is not there. It is static: every change of
 * the page's texts would have to adjust thousands of others.
 * @param {Element} element
 * @param {number} start
 * @param {number} end
 * @returns {StaticRange | null}
 */
export function rangeIn(element, start, end) {
  /** @type {{startContainer: Node, startOffset: number} | null} */
  let begun = null;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let before = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const length = node.nodeValue?.length ?? 0;
    if (!begun && start <= before + length) {
      begun = { startContainer: node, startOffset: Math.max(0, start - before) };
    }
    if (begun && end <= before + length) {
      return new StaticRange({ ...begun, endContainer: node, endOffset: end - before });
    }
    before += length;
  }
  return null;
}

/**
 * The offset in an element's text of a position in the document; -1 outside of it.
 * @param {Element} element
 * @param {Node | null} node
 * @param {number} offset
 */
export function offsetIn(element, node, offset) {
  if (!node || !element.contains(node)) return -1;
  const range = document.createRange();
  range.selectNodeContents(element);
  range.setEnd(node, offset);
  return range.toString().length;
}

/**
 * The offset in an element's text under a point of the screen; -1 outside of it.
 * @param {Element} element
 * @param {number} x
 * @param {number} y
 */
export function offsetAtPoint(element, x, y) {
  if ("caretPositionFromPoint" in document) {
    // @ts-ignore: not in all versions of TypeScript's DOM
    const place = document.caretPositionFromPoint(x, y);
    return place ? offsetIn(element, place.offsetNode, place.offset) : -1;
  }
  // @ts-ignore: Safari's name of it
  const range = document.caretRangeFromPoint?.(x, y);
  return range ? offsetIn(element, range.startContainer, range.startOffset) : -1;
}
