// The Pictures tab: uploads pictures and shows their text, line by line, beside them.

import { DemoStrip } from "/edgeapp/static/demo-strip.js";
import { copyText, download, fill, make, named, onPickerOptions, problem } from "/edgeapp/static/parts.js";
import { Queue } from "/edgeapp/static/queue.js";
import { QueuedTab } from "/edgeapp/static/queued-tab.js";
import { fromServer, t } from "/edgeapp/static/texts.js";

const BETTER = "microsoft/trocr-base-printed"; // reads more fonts, and noisier pictures
const UNSURE = 0.5; // below this share of certainty a line is marked

/** Several pictures, one after the other; all texts as one file. */
class PictureQueue extends Queue {
  async save() {
    this.leave();
    const done = this.items.filter(({ state }) => state === "done");
    const texts = done.map(({ file, kept }) => `${file.name}\n\n${textOf(kept)}\n`);
    download("pictures.txt", texts.join("\n\n"));
  }
}

/** The text of a picture, its translation below. */
const textOf = ({ lines, translation }) =>
  [lines.map(({ text }) => text).join("\n"), translation].filter(Boolean).join("\n\n");

class Pictures extends QueuedTab {
  constructor(root) {
    super(root, {
      task: "picture",
      tab: "pictures",
      working: t("Reading"),
      lost: t("The connection was lost, and the reading was cancelled."),
    });
    this.lines = [];
    this.boxes = [];
    this.translation = "";
    this.queue = new PictureQueue(root, this);
    this.listen();
  }

  /** What is needed to show the picture again. */
  keep() {
    const { file, lines, boxes, translation } = this;
    return { file, lines, boxes, translation };
  }

  /** Show a picture that was read before. */
  show({ file, lines, boxes, translation }) {
    this.prepare(file);
    this.found(boxes);
    for (const line of lines) this.add(line);
    this.translate(translation);
    this.status("");
    this.state("done");
  }

  upload({ pictures, limits }) {
    return { token: pictures, megabytes: limits.picture_megabytes };
  }

  fields() {
    return { prompt: this.find("[name=prompt]").value };
  }

  listen() {
    super.listen();
    new DemoStrip(this.find(".ea-demo"), {
      better: BETTER,
      modelsOf: ({ readers }) => readers,
      advice: t("Bundled reader: upright lines of English and German print only. {name} reads more.", { name: BETTER }),
      asks: t("Bundled reader: upright lines of English and German print only. For more, ask the owner of this machine for a larger model."),
      arrived: t("{name} is here. It reads the next picture.", { name: BETTER }),
    });
    onPickerOptions((options) => {
      this.options = options;
      this.pickers();
    });
    this.find("[name=language]").onchange = () => this.pickers();
    this.find(".ea-copy").onclick = ({ target }) => copyText(textOf(this), target, this.find(".ea-words"));
    const stem = () => this.file.name.replace(/\.[^.]*$/, "");
    this.find(".ea-save-txt").onclick = () => download(`${stem()}.txt`, `${textOf(this)}\n`);
    this.find(".ea-save-json").onclick = () => {
      const { lines, translation } = this;
      const content = { file: this.file.name, text: lines.map(({ text }) => text).join("\n"), lines };
      download(`${stem()}.json`, JSON.stringify(translation ? { ...content, translation } : content));
    };
    const image = this.find(".ea-shown img");
    image.onload = () => this.drawBoxes();
    image.onerror = () => (this.find(".ea-shown").hidden = true); // such as TIFF
    this.during("picture_lines", ({ boxes }) => this.found(boxes));
    this.during("picture_delta", ({ text }) => this.append(text));
    this.during("picture_line", ({ line }) => this.add(line));
    this.during("picture_translating", ({ text }) => {
      this.status(t("Translating"));
      this.translate(this.translation + text);
    });
    this.during("picture_translated", ({ text, warnings }) => {
      this.translate(text);
      problem(this.root, warnings.map(fromServer).join(" "));
    });
    this.during("picture_done", () => (this.complete = true));
  }

  pickers() {
    const { pairs, languages, readers } = this.options;
    const language = this.find("[name=language]");
    const sources = new Set(pairs.map((pair) => pair.source).filter(Boolean));
    fill(language, named(sources, languages));
    const suitable = pairs.filter((pair) => !pair.source || pair.source === language.value);
    const into = new Set(suitable.map((pair) => pair.target).filter((code) => code !== language.value));
    fill(this.find("[name=target]"), [["", t("None")], ...named(into, languages)]);
    fill(this.find("[name=model]"), [["", t("Automatic")], ...readers.map(({ name }) => [name, name])]);
  }

  state(name) {
    super.state(name);
    this.find(".ea-read").setAttribute("aria-busy", String(name === "working"));
    this.find(".ea-exports").hidden = name === "working" || !this.lines.length;
  }

  /** Show a picture without text. */
  prepare(file) {
    this.file = file;
    this.lines = [];
    this.boxes = [];
    this.current = null;
    this.translate("");
    problem(this.root, "");
    this.find(".ea-name").textContent = file.name;
    this.find(".ea-read").replaceChildren();
    this.find(".ea-boxes").replaceChildren();
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = URL.createObjectURL(file);
    this.find(".ea-shown").hidden = false;
    this.find(".ea-shown img").src = this.url;
  }

  found(boxes) {
    this.boxes = boxes;
    this.drawBoxes();
  }

  /** Frames around the lines. A single one is the whole picture. */
  drawBoxes() {
    const { naturalWidth: width, naturalHeight: height } = this.find(".ea-shown img");
    if (!width || this.boxes.length < 2) return this.find(".ea-boxes").replaceChildren();
    const frames = this.boxes.map(([left, top, right, bottom]) => {
      const frame = make("span");
      const share = (part, whole) => `${(100 * part) / whole}%`;
      Object.assign(frame.style, {
        left: share(left, width),
        top: share(top, height),
        width: share(right - left, width),
        height: share(bottom - top, height),
      });
      return frame;
    });
    this.find(".ea-boxes").replaceChildren(...frames);
  }

  /** Text of the line that is being read. */
  append(text) {
    this.current ??= this.find(".ea-read").appendChild(make("li", {}, make("span")));
    this.current.firstChild.append(text);
  }

  /** A line is complete. */
  add(line) {
    this.append("");
    const row = this.current;
    this.current = null;
    row.firstChild.textContent = line.text;
    const sure = Math.exp(line.score);
    const score = make("span", { class: "ea-score", title: t("How sure the model is") }, `${Math.round(100 * sure)} %`);
    score.classList.toggle("ea-unsure", sure < UNSURE);
    row.append(score);
    const number = this.lines.push(line) - 1;
    const mark = (over) => this.find(".ea-boxes").children[number]?.classList.toggle("ea-over", over);
    row.onmouseenter = () => mark(true);
    row.onmouseleave = () => mark(false);
  }

  translate(text) {
    this.translation = text;
    this.find(".ea-translated").textContent = text;
    this.find(".ea-translated").hidden = !text;
  }

  settle(cancelled) {
    if (this.current) this.current.remove();
    this.current = null;
    const empty = !this.lines.some(({ text }) => text.trim());
    if (cancelled) this.status(t("Cancelled. The text so far is below."));
    else this.status(empty ? t("No text was found.") : t("Done."));
  }
}

export const start = (element) => new Pictures(element.querySelector(".ea-pictures"));
