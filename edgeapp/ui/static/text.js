// The Text tab: translates the text on the left as it is typed.

import { doubtSwitch } from "/edgeapp/static/doubt-switch.js";
import { copyText, download, fill, named, problem, onPickerOptions } from "/edgeapp/static/parts.js";
import { ask, hello, keeps, on, send } from "/edgeapp/static/session.js";
import { fromServer, languageName, locale, t } from "/edgeapp/static/texts.js";
import { UndoStack } from "/edgeapp/static/editor/undo.js";
import { takeText } from "/edgeapp/static/history/reopen.js";
import { ResultPane } from "/edgeapp/static/text/result.js";

const PAUSE_MS = 180;
const KEEP_MS = 2500;
const AGAIN_MS = 2000;
const DETECT_MS = 700;
const DETECTABLE = 20; // characters: the language of less text is a guess
const SAMPLE = 4000; // characters: more text does not change the answer
const LONG_PASTE = 2000; // characters

class Text {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.source = this.find(".ea-source");
    this.result = this.find(".ea-result");
    this.pane = new ResultPane(this.result);
    this.stack = new UndoStack({ text: "", language: "", target: "" });
    this.number = 0;
    this.live = "";
    this.kept = null;
    this.listen();
  }

  listen() {
    onPickerOptions((options) => {
      this.options = options;
      const sources = new Set(options.pairs.map((pair) => pair.source).filter(Boolean));
      fill(this.find("[name=language]"), named(sources, options.languages));
      this.targets();
      if (this.stack.past.length === 0) this.stack.reset(this.state);
      if (!this.reopen()) this.translate();
    });
    addEventListener("ea-text", () => this.options && this.reopen());
    this.source.oninput = () => {
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.translate(), PAUSE_MS);
      this.remember("typed");
      this.update();
    };
    this.source.onpaste = (event) => this.paste(event);
    this.source.onblur = () => this.stack.pause();
    this.source.onkeydown = (event) => {
      const key = event.key.toLowerCase();
      if (!(event.ctrlKey || event.metaKey) || !["z", "y"].includes(key)) return;
      event.preventDefault();
      this.undo(key === "y" || event.shiftKey);
    };
    this.find("[name=language]").onchange = () => {
      this.targets();
      this.remember();
      this.translate();
    };
    this.find("[name=target]").onchange = () => {
      this.remember();
      this.translate();
    };
    this.find(".ea-swap").onclick = () => this.swap();
    this.find(".ea-clear").onclick = () => this.put("");
    this.find(".ea-undo").onclick = () => this.undo(false);
    this.find(".ea-copy").onclick = ({ target }) => copyText(this.pane.text, target, this.result);
    this.find(".ea-save").onclick = () => {
      download(`translation.${this.find("[name=target]").value}.txt`, this.pane.text);
    };
    const chosen = this.find(".ea-upload input");
    chosen.onchange = () => this.open(chosen.files[0]).finally(() => (chosen.value = ""));
    this.source.ondragover = (event) => event.preventDefault();
    this.source.ondrop = (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.open(event.dataTransfer.files[0]);
    };
    on("text_delta", ({ number, text }) => {
      if (number !== this.number) return;
      if (!this.live) problem(this.root, ""); // of the attempt before
      this.live += text;
      // The rest of the old translation stays behind the new one, to avoid flicker.
      this.write(this.live, this.before?.slice(this.live.length) ?? "");
    });
    on("text_doubts", ({ number, spans }) => number === this.number && this.pane.doubt(spans));
    doubtSwitch(this.find(".ea-mark-doubts"), () => this.pane.mark());
    on("text_done", (done) => done.number === this.number && this.done(done));
    on("error", ({ kind, number, message, busy }) => kind === "text" && number === this.number && this.failed(message, busy));
    on("lost", () => this.busy(false));
  }

  targets() {
    const { pairs, languages } = this.options;
    const source = this.find("[name=language]").value;
    const suitable = pairs.filter((pair) => !pair.source || pair.source === source);
    const into = new Set(suitable.map((pair) => pair.target).filter((code) => code !== source));
    fill(this.find("[name=target]"), named(into, languages));
    const [from, to] = this.languages;
    const back = pairs.some((pair) => [to, null].includes(pair.source) && pair.target === from);
    this.find(".ea-swap").disabled = !back;
    this.find(".ea-swap").title = back ? "" : t("No model here translates back");
  }

  get languages() {
    return [this.find("[name=language]").value, this.find("[name=target]").value];
  }

  put(text) {
    this.source.value = text;
    this.kept = null;
    this.remember();
    this.translate();
    this.source.focus();
  }

  /** What undoing goes back to. */
  get state() {
    const [language, target] = this.languages;
    return { text: this.source.value, language, target };
  }

  /** A step that can be undone. kind: see UndoStack. */
  remember(kind = "") {
    this.stack.push(this.state, kind);
    clearTimeout(this.pausing);
    this.pausing = setTimeout(() => this.stack.pause(), 1000);
    this.update();
  }

  /** again: do what was undone. */
  undo(again) {
    if (!(again ? this.stack.redo() : this.stack.undo())) return;
    const { text, language, target } = this.stack.value;
    this.source.value = text;
    this.find("[name=language]").value = language;
    this.targets();
    this.find("[name=target]").value = target;
    this.kept = null;
    this.translate();
    this.source.focus();
  }

  /** A long text is put in at once: the browser's own way takes seconds for many lines. */
  paste(event) {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (text.length < LONG_PASTE) return;
    event.preventDefault();
    this.source.setRangeText(text.replace(/\r\n?/g, "\n"), this.source.selectionStart, this.source.selectionEnd, "end");
    this.stack.pause();
    this.source.oninput();
  }

  /** Go on with a text of the history. Returns whether there is one. */
  reopen() {
    const text = takeText();
    if (!text) return false;
    const { record, language, target } = text;
    if (language) this.find("[name=language]").value = language;
    this.targets();
    if (target) this.find("[name=target]").value = target;
    this.put(text.text);
    this.kept = { record, text: text.text, language, target };
    return true;
  }

  /** Offer to switch to the language that the text is in, if that is another one. */
  async detect() {
    const place = this.find(".ea-detected");
    const [language] = this.languages;
    const text = this.source.value.slice(0, SAMPLE);
    place.hidden = true;
    if (text.trim().length < DETECTABLE) return;
    const message = { type: "detect_language", text, expected: language };
    const { language: other } = await ask(message).catch(() => ({ language: null }));
    if (!other || text !== this.source.value.slice(0, SAMPLE) || language !== this.languages[0]) return;
    const name = languageName(other, this.options.languages[other]);
    const possible = this.options.pairs.some((pair) => pair.source === other);
    place.textContent = possible
      ? t("Looks like {language}: switch", { language: name })
      : t("Looks like {language}; no model here translates it", { language: name });
    place.disabled = !possible;
    place.hidden = false;
    place.onclick = () => {
      this.find("[name=language]").value = other;
      this.targets();
      this.remember();
      this.translate();
    };
  }

  translate(again = false) {
    clearTimeout(this.soon);
    clearTimeout(this.later);
    const text = this.source.value;
    const [language, target] = this.languages;
    this.number += 1;
    this.before = this.pane.all;
    this.live = "";
    clearTimeout(this.detecting);
    this.detecting = setTimeout(() => this.detect(), DETECT_MS);
    if (!again) problem(this.root, "");
    this.update();
    const { characters } = hello()?.limits ?? {};
    const long = text.length > characters && [...text].length > characters;
    if (!text.trim() || !target || long) {
      send({ type: "cancel", kind: "text" });
      this.write("", "");
      this.busy(false);
      const most = characters?.toLocaleString(locale);
      if (long) problem(this.root, t("This text is longer than the limit of {most} characters. In a terminal, edgeapp translate takes files of any length.", { most }));
      return;
    }
    this.busy(send({ type: "text", text, language, target, number: this.number }));
  }

  done({ text, warnings }) {
    this.write(text, "");
    this.pane.write();
    this.busy(false);
    problem(this.root, warnings.map(fromServer).join(" "));
    if (keeps()) this.later = setTimeout(() => this.keep(), KEEP_MS);
  }

  failed(message, busy) {
    this.busy(false);
    problem(this.root, message);
    if (busy) this.soon = setTimeout(() => this.translate(true), AGAIN_MS);
    else this.write("", ""); // what is there is the translation of another text
  }

  write(text, old) {
    this.pane.set(text, old);
    this.update();
  }

  busy(now) {
    this.result.setAttribute("aria-busy", now);
    this.update();
  }

  update() {
    const empty = !this.pane.text;
    this.find(".ea-undo").disabled = !this.stack.past.length;
    this.find(".ea-copy").disabled = this.find(".ea-save").disabled = empty;
    this.find(".ea-clear").disabled = !this.source.value;
  }

  /** Store a text that was not changed for a while in the history, in place of its shorter version. */
  async keep() {
    const [language, target] = this.languages;
    const [text, translation] = [this.source.value, this.pane.text];
    if (!text.trim() || !translation.trim()) return;
    const kept = this.kept;
    const grown = kept?.language === language && kept.target === target && text.startsWith(kept.text);
    const instead = grown ? kept.record : null;
    const message = { type: "keep_text", text, translation, language, target, instead };
    const { record } = await ask(message).catch(() => ({ record: null }));
    this.kept = record === null ? null : { record, text, language, target };
  }

  swap() {
    const [language, target] = this.languages;
    const { text } = this.pane;
    this.find("[name=language]").value = target;
    this.targets();
    this.find("[name=target]").value = language;
    if (text) this.source.value = text;
    this.kept = null;
    this.remember();
    this.translate();
  }

  async open(file) {
    if (!file) return;
    const text = await file.text();
    if (text.includes("\u0000")) return problem(this.root, t("{name} is not a text file.", { name: file.name }));
    this.put(text.replace(/^\ufeff/, "").replace(/\r\n?/g, "\n"));
  }
}

export const start = (element) => new Text(element.querySelector(".ea-text"));
