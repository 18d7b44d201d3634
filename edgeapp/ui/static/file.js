// The File tab: uploads a recording and shows its transcript, which can be played, edited and saved.

import { Player } from "/edgeapp/static/player.js";
import { clock, fillPickers, make, problem, saveTranscript, showNotes, onPickerOptions } from "/edgeapp/static/parts.js";
import { on } from "/edgeapp/static/session.js";
import { t } from "/edgeapp/static/texts.js";
import { Editor } from "/edgeapp/static/editor/editor.js";
import { Saver } from "/edgeapp/static/editor/saver.js";
import { fileName } from "/edgeapp/static/history/listing.js";
import { Queue } from "/edgeapp/static/queue.js";
import { QueuedTab } from "/edgeapp/static/queued-tab.js";
import { RecognizerCard } from "/edgeapp/static/recognizer-card.js";
import { Picture } from "/edgeapp/static/video.js";

const FORMATS = ["txt", "md", "docx", "srt", "vtt", "tsv", "json"];

class File extends QueuedTab {
  constructor(root) {
    super(root, {
      task: "file",
      tab: "file",
      working: t("Transcribing"),
      lost: t("The connection was lost, and the transcription was cancelled."),
    });
    this.player = new Player(root);
    this.segments = new Editor(this.find(".ea-segments"), this.find(".ea-editing"), this.player);
    this.player.moved = (time) => this.segments.mark(time);
    this.saver = new Saver(() => this.segments.texts(), (text) => this.status(text));
    this.picture = new Picture(this.player.audio, () => {
      const { cues, translation } = this.segments.texts();
      return translation.length ? translation : cues;
    });
    this.segments.changed = () => {
      this.saver.changed();
      this.picture.changed();
    };
    this.queue = new Queue(root, this);
    this.card = new RecognizerCard(root, t("The recordings are transcribed as soon as it is here."));
    this.listen();
  }

  /** Wait for a recognizer, if none is here. */
  async able() {
    if (!this.card.lacking) return;
    this.status(t("Waiting for the model"));
    await new Promise((resolve) => (this.unwait = this.card.wait(resolve)));
  }

  /** What is needed to show the recording again. */
  keep() {
    const { file, language, target, duration, notes } = this;
    const { record } = this.saver;
    const { sound } = this.player;
    return { file, language, target, duration, notes, record, sound, texts: this.segments.texts() };
  }

  /** Show a recording that was worked on before. */
  show({ file, language, target, duration, notes, record, sound, texts }) {
    Object.assign(this, { file, language, target, duration });
    this.saver.open(record);
    this.segments.open(texts.cues, texts.translation, { language, target });
    this.head();
    this.note(notes);
    if (sound) this.player.draw(sound);
    this.player.setLength(duration);
    this.progress(duration);
    this.status("");
    this.state("done");
    this.picture.changed();
  }

  /** For the zip of all transcripts. */
  transcript({ language, target, texts }) {
    return { language, target, ...texts };
  }

  listen() {
    super.listen();
    onPickerOptions((options) => {
      this.options = options;
      fillPickers(this.root, options);
    });
    this.find("[name=language]").onchange = () => fillPickers(this.root, this.options);
    on("hello", ({ limits }) => {
      const text = t("up to {size} MB and {time} of audio", { size: limits.megabytes, time: clock(60 * limits.minutes) });
      this.find(".ea-limits").textContent = text;
    });
    const buttons = FORMATS.map((format) => make("button", { type: "button", class: "ea-quiet" }, format));
    this.find(".ea-formats").append(...buttons);
    for (const button of buttons) button.onclick = () => this.save(button.textContent);
    this.during("file_sound", (sound) => this.player.draw(sound));
    this.during("file_started", ({ language, duration }) => {
      this.language = this.segments.sentences.languages.language = language;
      this.duration = duration;
      this.player.setLength(duration);
      this.status("");
    });
    this.during("file_warning", ({ message }) => this.note([...this.notes, message]));
    this.during("file_heard", ({ text }) => this.segments.append(text));
    this.during("file_retracted", () => this.segments.retract());
    this.during("file_segment", ({ segment, left, record }) => {
      this.segments.add(segment);
      this.saver.record = record ?? this.saver.record;
      this.picture.changed();
      this.progress(segment.end);
      this.status(left === null ? "" : t("about {time} left", { time: clock(left + 0.9) }), left);
    });
    this.during("file_translating", ({ text }) => this.segments.append(text, true));
    this.during("file_translated", ({ cue }) => {
      this.segments.translate(cue);
      this.picture.changed();
    });
    this.during("file_done", () => {
      this.progress(this.duration);
      this.status(t("Done."));
      this.complete = true;
    });
  }

  state(name) {
    super.state(name);
    if (name !== "working") this.unwait?.();
    this.find(".ea-exports").hidden = name === "working" || !this.segments.count;
    for (const select of this.root.querySelectorAll(".ea-bar select")) select.disabled = name !== "empty";
    if (name === "done") this.saver.release();
  }

  progress(seconds) {
    this.find(".ea-progress").value = this.duration ? Math.min(1, seconds / this.duration) : 0;
    this.player.done(seconds);
  }

  prepare(file, choice) {
    this.saver.open(null, true);
    this.file = file;
    this.target = choice.target ?? "";
    this.duration = 0;
    this.segments.clear({ target: this.target });
    this.head();
    this.note([]);
    this.progress(0);
  }

  /** What is to be known about the transcript. */
  note(notes) {
    this.notes = notes;
    showNotes(this.root, notes);
  }

  /** Name and player of the recording. */
  head() {
    problem(this.root, "");
    this.find(".ea-name").textContent = this.file.name;
    this.find(".ea-which").hidden = !this.target;
    this.player.open(this.file);
  }

  settle(cancelled) {
    this.segments.retract();
    if (cancelled) this.status(t("Cancelled. The text so far is below."));
  }

  reset() {
    super.reset(); // first: the queue keeps what was shown
    this.saver.open(null);
    this.player.close();
    this.segments.clear();
  }

  async save(format) {
    const { cues, translation } = this.segments.texts();
    const transcript = {
      language: this.language,
      cues,
      translation,
      target: this.target,
      title: this.file.name,
      which: this.target ? this.find("[name=which]").value : "",
    };
    await saveTranscript(fileName(this.file.name), format, transcript).catch((error) => problem(this.root, error.message));
  }
}

export const start = (element) => new File(element.querySelector(".ea-file"));
