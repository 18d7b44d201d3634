// The Live tab's Share dialog: a page for viewers, an overlay for video programs, and a link that
// logs another device of the user in, each with a QR code.

import { problem } from "/edgeapp/static/parts.js";
import { ask, on } from "/edgeapp/static/session.js";
import { locale, t } from "/edgeapp/static/texts.js";
import { toast } from "/edgeapp/static/toast.js";

const COPIED_MS = 2000;
const STORE = "ea-share"; // in sessionStorage: the token of this tab's broadcast

/** The token of the broadcast that this tab's captions go to; "" if they are not shared. */
export const shared = () => sessionStorage.getItem(STORE) ?? "";

export class Share {
  /** @param {HTMLElement} root The tab's element. */
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.button = this.find(".ea-share");
    this.dialog = this.find(".ea-sharing");
    this.button.onclick = () => this.open();
    this.find(".ea-unshare").onclick = () => this.end();
    this.find(".ea-invite").onclick = () => this.invite();
    this.find(".ea-sharing-close").onclick = () => this.dialog.close();
    this.dialog.onclick = ({ target }) => target === this.dialog && this.dialog.close();
    for (const button of this.dialog.querySelectorAll("[data-copies]")) {
      button.onclick = () => this.copy(button, this.find(button.dataset.copies));
    }
    on("live_status", ({ viewers }) => {
      // The server has ended it, or has been started again.
      if (viewers === undefined) sessionStorage.removeItem(STORE);
      this.count(viewers);
    });
    this.count();
  }

  /** @param {number | undefined} viewers Undefined: not known. */
  count(viewers = undefined) {
    const text = viewers ? t("Shared, {count}", { count: viewers }) : shared() ? t("Shared") : t("Share");
    if (this.button.textContent !== text) this.button.textContent = text;
    this.button.setAttribute("aria-pressed", String(Boolean(shared())));
  }

  async open() {
    try {
      const reply = await ask({ type: "share", share: shared() });
      sessionStorage.setItem(STORE, reply.share);
      this.show(reply);
      this.find("[name=overlay]").value = reply.overlay;
      this.count(reply.viewers);
    } catch (error) {
      return problem(this.root, error.message);
    }
    this.find(".ea-sharing-title").textContent = t("Captions for an audience");
    this.find(".ea-audience").hidden = false;
    if (this.dialog.open) return;
    this.dialog.showModal();
    this.find(".ea-sharing-close").focus();
  }

  /** A link for another device of the user. */
  async invite() {
    try {
      this.show(await ask({ type: "invite" }));
    } catch (error) {
      this.find(".ea-sharing-says").textContent = error.message;
      return;
    }
    this.find(".ea-sharing-title").textContent = t("Another device of yours");
    this.find(".ea-sharing-says").textContent = t("Logs one device in, once, until {time}.", { time: this.until });
    this.find(".ea-audience").hidden = true;
  }

  /** @param {{qr: string, url: string, ends: string, here_only: boolean}} link */
  show({ qr, url, ends, here_only: hereOnly }) {
    this.find(".ea-qr").innerHTML = qr; // made by the server, of its own address
    this.find("[name=link]").value = url;
    this.find(".ea-invite").hidden = hereOnly;
    this.until = new Date(ends).toLocaleTimeString(locale, { timeStyle: "short" });
    this.find(".ea-sharing-says").textContent = hereOnly
      ? t("Only this machine can open it: to let other devices in, start EdgeApp with --lan.")
      : t("Who has this link reads along, in a language of their own, until {time}.", { time: this.until });
  }

  async end() {
    await ask({ type: "unshare", share: shared() }).catch(() => {});
    sessionStorage.removeItem(STORE);
    this.count();
    this.dialog.close();
    toast(t("The captions are not shared any more."));
  }

  /** @param {HTMLButtonElement} button @param {HTMLInputElement} field */
  async copy(button, field) {
    field.select();
    // Without https the browser has no clipboard for pages: the address is marked, at least.
    await navigator.clipboard?.writeText(field.value).catch(() => {});
    if (!navigator.clipboard) return;
    button.textContent = t("Copied");
    setTimeout(() => (button.textContent = t("Copy")), COPIED_MS);
  }
}
