// The File tab: uploads a recording and shows its transcript, which can be played, edited and saved.

import { onDrop } from "/edgeapp/static/dropped.js";
import { Player } from "/edgeapp/static/player.js";
import { clock, fillPickers, make, picked, problem, remember, saveTranscript, onPickerOptions } from "/edgeapp/static/parts.js";
import { hello, keeps, on, send } from "/edgeapp/static/session.js";
import { Editor } from "/edgeapp/static/editor/editor.js";
import { Saver } from "/edgeapp/static/editor/saver.js";
import { fileName } from "/edgeapp/static/history/listing.js";
import { Queue } from "/edgeapp/static/queue.js";
import { Picture } from "/edgeapp/static/video.js";

const FORMATS = ["txt", "md", "docx", "srt", "vtt", "tsv", "json"];
const MB = 1 << 20;
const AGAIN_MS = 600;

class File {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.player = new Player(root);
    this.segments = new Editor(this.find(".ea-segments"), this.find(".ea-editing"), this.player);
    this.player.moved = (time) => this.segments.mark(time);
    this.saver = new Saver(() => this.segments.texts(), (text) => this.status(text));
    this.name = "";
    this.picture = new Picture(this.player.audio, () => {
      const { cues, translation } = this.segments.texts();
      return translation.length ? translation : cues;
    });
    this.segments.changed = () => {
      this.saver.changed();
      this.picture.changed();
    };
    this.queue = new Queue(root, this.queued());
    this.listen();
  }

  /** What the queue asks of this tab. */
  queued() {
    const file = this;
    return {
      begin: (recording) => this.begin(recording),
      get working() {
        return file.working;
      },
      keep: () => this.take(),
      show: (kept) => this.show(kept),
      transcript: ({ language, target, texts }) => ({ language, target, ...texts }),
    };
  }

  /** What is needed to show the recording again. */
  take() {
    const { file, language, target, duration } = this;
    const { record } = this.saver;
    const { sound } = this.player;
    const took = this.queue.current?.kept?.took ?? this.queue.took;
    return { file, language, target, duration, record, sound, texts: this.segments.texts(), took };
  }

  /** Show a recording that was worked on before. */
  show({ file, language, target, duration, record, sound, texts }) {
    Object.assign(this, { file, language, target, duration, name: file.name });
    this.saver.open(record);
    this.segments.open(texts.cues, texts.translation, { language, target });
    problem(this.root, "");
    this.find(".ea-name").textContent = file.name;
    this.find(".ea-which").hidden = !target;
    this.player.open(file);
    if (sound) this.player.draw(sound);
    this.player.setLength(duration);
    this.progress(duration);
    this.status("");
    this.state("done");
    this.picture.changed();
  }

  listen() {
    remember(this.root, "ea-file-choice");
    onDrop((files) => this.queue.add(files));
    onPickerOptions((options) => {
      this.options = options;
      fillPickers(this.root, options);
    });
    this.find("[name=language]").onchange = () => fillPickers(this.root, this.options);
    on("hello", ({ limits }) => {
      const text = `up to ${limits.megabytes} MB and ${clock(60 * limits.minutes)} of audio`;
      this.find(".ea-limits").textContent = text;
    });
    const drop = this.find(".ea-drop");
    const chosen = drop.querySelector("input");
    chosen.onchange = () => {
      this.queue.add([...chosen.files]);
      chosen.value = "";
    };
    this.find(".ea-cancel").onclick = () => this.cancel();
    this.find(".ea-again").onclick = () => this.reset();
    const buttons = FORMATS.map((format) => make("button", { type: "button", class: "ea-quiet" }, format));
    this.find(".ea-formats").append(...buttons);
    for (const button of buttons) button.onclick = () => this.save(button.textContent);
    // What a recording that was cancelled or has failed still sends belongs to no other one.
    const during = (type, listener) => on(type, (message) => this.sent && listener(message));
    during("file_sound", (sound) => this.player.draw(sound));
    during("file_started", ({ language, duration }) => {
      this.language = this.segments.sentences.languages.language = language;
      this.duration = duration;
      this.player.setLength(duration);
      this.status("");
    });
    during("file_heard", ({ text }) => this.segments.append(text));
    during("file_retracted", () => this.segments.retract());
    during("file_segment", ({ segment, left, record }) => {
      this.segments.add(segment);
      this.saver.record = record ?? this.saver.record;
      this.picture.changed();
      this.progress(segment.end);
      this.status(left === null ? "" : `about ${clock(left + 0.9)} left`);
    });
    during("file_translating", ({ text }) => this.segments.append(text, true));
    during("file_translated", ({ cue }) => {
      this.segments.translate(cue);
      this.picture.changed();
    });
    during("file_done", () => {
      this.progress(this.duration);
      this.status("Done.");
      this.complete = true;
    });
    on("error", ({ kind, message }) => kind === "file" && this.failed(message));
    during("idle", ({ kind, cancelled }) => kind === "file" && this.ended(cancelled));
    on("lost", () => this.working && this.failed("The connection was lost, and the transcription was cancelled."));
  }

  get working() {
    return this.root.dataset.state === "working";
  }

  state(name) {
    this.root.dataset.state = name;
    const empty = name === "empty";
    this.find(".ea-drop").hidden = !empty;
    this.find(".ea-work").hidden = empty;
    this.find(".ea-cancel").hidden = name !== "working";
    // Shown late: it takes the place of Cancel, which may still be double-clicked.
    this.find(".ea-again").hidden = true;
    clearTimeout(this.soon);
    const again = () => (this.find(".ea-again").hidden = false);
    if (name === "done") this.soon = setTimeout(again, AGAIN_MS);
    this.find(".ea-exports").hidden = name === "working" || !this.segments.count;
    for (const select of this.root.querySelectorAll(".ea-bar select")) select.disabled = !empty;
  }

  status(text) {
    this.find(".ea-left").textContent = text;
    this.queue.note(text);
  }

  progress(seconds) {
    this.find(".ea-progress").value = this.duration ? Math.min(1, seconds / this.duration) : 0;
    this.player.done(seconds);
  }

  async begin(file) {
    const choice = picked(this.root);
    this.saver.open(null, true);
    this.file = file;
    this.complete = this.sent = false;
    this.name = file.name;
    this.target = choice.target ?? "";
    this.duration = 0;
    this.segments.clear({ target: this.target });
    problem(this.root, "");
    this.find(".ea-name").textContent = file.name;
    this.find(".ea-which").hidden = !this.target;
    this.player.open(file);
    this.progress(0);
    this.state("working");
    this.status("Uploading");
    const server = hello();
    try {
      if (!server) throw new Error("Not connected to EdgeApp yet; try again.");
      const { megabytes } = server.limits;
      if (file.size > megabytes * MB) {
        throw new Error(`${file.name} is larger than the limit of ${megabytes} MB.`);
      }
      this.sending = new AbortController();
      const reply = await fetch(`/edgeapp/upload/${server.session}`, {
        method: "PUT",
        body: file,
        signal: this.sending.signal,
      });
      if (!reply.ok) throw new Error((await reply.json()).error);
      this.status("Transcribing");
      this.sent = true;
      send({ type: "file", name: file.name, keep: keeps(), ...choice });
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error.message);
    }
  }

  cancel() {
    this.sending?.abort();
    send({ type: "cancel", kind: "file" });
    this.ended(true);
  }

  ended(cancelled) {
    if (!this.working) return;
    this.sent = false;
    this.segments.retract();
    if (cancelled) this.status("Cancelled. The text so far is below.");
    this.state("done");
    this.saver.release();
    this.queue.ended(this.complete ? "done" : "cancelled");
  }

  failed(message) {
    this.sent = false;
    problem(this.root, message);
    this.status("");
    this.state("done");
    this.saver.release();
    this.queue.ended("failed", message);
  }

  reset() {
    this.saver.open(null);
    this.queue.reset();
    this.player.close();
    this.segments.clear();
    problem(this.root, "");
    this.state("empty");
    this.find(".ea-drop input").focus();
  }

  async save(format) {
    const { cues, translation } = this.segments.texts();
    const transcript = {
      language: this.language,
      cues,
      translation,
      target: this.target,
      title: this.name,
      which: this.target ? this.find("[name=which]").value : "",
    };
    await saveTranscript(fileName(this.name), format, transcript).catch((error) => problem(this.root, error.message));
  }
}

export const start = (element) => new File(element.querySelector(".ea-file"));
