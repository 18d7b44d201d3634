// "Use via API", Gradio's own view of the named endpoints, for screen readers and the keyboard:
// names for its buttons that are pictures, a list around its list items, code that can be scrolled.

import { t } from "/edgeapp/static/texts.js";

/** @param {Element} view */
function label(view) {
  for (const button of view.querySelectorAll("button:not([aria-label])")) {
    if (button.textContent.trim() || button.title) continue;
    button.setAttribute("aria-label", button.closest(".banner-wrap") ? t("Close") : t("Copy"));
  }
  for (const code of view.querySelectorAll("pre, code")) {
    if (code instanceof HTMLElement && code.scrollWidth > code.clientWidth) code.tabIndex = 0;
  }
  for (const item of view.querySelectorAll("li")) {
    const list = item.parentElement;
    if (list && !list.matches("ul, ol, [role]")) list.setAttribute("role", "list");
  }
}

/** Label the view whenever it is opened and drawn again. */
export function labelApiView() {
  let drawn = false;
  new MutationObserver(() => {
    const view = document.querySelector(".api-docs");
    if (!view || drawn) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      label(view);
    });
  }).observe(document.body, { childList: true, subtree: true });
}
