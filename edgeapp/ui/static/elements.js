// Elements, times and sizes: what every page needs, without a line to the server.

import { decimal, t } from "/edgeapp/static/texts.js";

/** 75 → "1:15", 3675 → "1:01:15". */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  if (whole >= 3600) parts.unshift(Math.floor(whole / 3600));
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : part)).join(":");
}

/** 1500000 → "1.5 MB". */
export function size(bytes) {
  if (bytes >= 1e9) return t("{number} GB", { number: decimal(bytes / 1e9, 1) });
  return t("{number} MB", { number: decimal(bytes / 1e6, bytes >= 1e8 ? 0 : 1) });
}

/** Create an element. given: attributes, and properties that are not strings. */
export function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
