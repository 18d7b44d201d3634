// The open record of the history: played, corrected, renamed, downloaded, deleted.

import { Editor } from "/edgeapp/static/editor/editor.js";
import { Saver } from "/edgeapp/static/editor/saver.js";
import { downloads, fileName, KINDS, marked } from "/edgeapp/static/history/listing.js";
import { reopenText } from "/edgeapp/static/history/reopen.js";
import { clock, fill, make, problem, saveTranscript } from "/edgeapp/static/parts.js";
import { Player } from "/edgeapp/static/player.js";
import { ask } from "/edgeapp/static/session.js";
import { languageName, locale, t } from "/edgeapp/static/texts.js";

/** place: the element of the record. Set `listChanged`, `deleted` and `closed` to functions. */
export class RecordView {
  constructor(place) {
    this.place = place;
    this.find = (selector) => place.querySelector(selector);
    this.player = new Player(place);
    this.editor = new Editor(this.find(".ea-segments"), this.find(".ea-editing"), this.player);
    this.player.moved = (time) => this.editor.mark(time);
    this.saver = new Saver(() => this.editor.texts(), (text) => this.status(text));
    this.editor.changed = () => this.saver.changed();
    this.record = null;
    this.listChanged = this.deleted = this.closed = () => {};
    this.find(".ea-back").onclick = () => this.closed();
    this.find(".ea-name").onchange = () => this.rename();
    this.find(".ea-download").onclick = () => this.download();
    this.find(".ea-mute").onclick = () => this.deleteSound();
    this.find(".ea-delete").onclick = () => this.deleted(this.record);
    this.find(".ea-reopen").onclick = () => {
      const { id, language, target } = this.record;
      reopenText({ record: id, text: this.reply.text, translation: this.reply.translated, language, target });
    };
  }

  /** Show a record. reply: of the request "record". query: is marked and scrolled to. */
  show(reply, query) {
    const { record, cues, translation, text, translated } = reply;
    this.reply = reply;
    this.record = record;
    this.player.close();
    this.saver.open(null);
    problem(this.place, "");
    this.status("");
    this.find(".ea-name").value = record.title;
    this.showFacts();
    const isText = record.kind === "text";
    this.find(".ea-reopen").hidden = !isText;
    this.find(".ea-segments").hidden = isText;
    const pair = this.find(".ea-pair");
    pair.hidden = !isText;
    pair.replaceChildren(make("p", {}, ...withMarks(text, query)));
    if (translated) pair.append(make("p", { class: "ea-meant" }, ...withMarks(translated, query)));
    this.choices = downloads({ timed: !isText, target: translated ? (record.target ?? "translation") : null });
    fill(this.find("[name=download]"), this.choices.map(({ label }, index) => [String(index), label]));
    this.find("[name=download]").value = "0";
    if (isText) this.editor.clear();
    else {
      this.editor.open(cues, translation, record);
      this.saver.open(record.id, false, { cues, translation });
    }
    this.showSound();
    this.place.hidden = false;
    this.place.focus({ preventScroll: true });
    scrollTo(0, 0);
    const words = query.split(/\s+/).filter(Boolean);
    if (isText) pair.querySelector("mark")?.scrollIntoView({ block: "center" });
    else if (words.length) this.editor.seek(query, words);
  }

  showFacts() {
    const { kind, created, duration_s, model, target } = this.record;
    const when = new Date(created).toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });
    const facts = [KINDS[kind], when, duration_s && clock(duration_s), model, target && t("into {language}", { language: languageName(target) })];
    this.find(".ea-what").textContent = facts.filter(Boolean).join(" · ");
  }

  showSound() {
    const { sound, id, duration_s } = this.record;
    this.find(".ea-player").hidden = this.find(".ea-mute").hidden = !sound;
    if (!sound) return this.player.close();
    this.player.openUrl(`/edgeapp/sound/${id}`);
    this.player.setLength(duration_s);
  }

  hide() {
    this.saver.open(null);
    this.player.close();
    this.record = null;
    this.place.hidden = true;
  }

  status(text) {
    this.find(".ea-left").textContent = text;
  }

  async rename() {
    const title = this.find(".ea-name").value;
    await ask({ type: "rename", record: this.record.id, title }).catch((error) => problem(this.place, error.message));
    this.record.title = title;
    this.listChanged();
  }

  async download() {
    const { format, which } = this.choices[Number(this.find("[name=download]").value)];
    const { title, language, target, kind } = this.record;
    const texts = kind === "text" ? this.reply : this.editor.texts();
    const { cues, translation } = texts;
    const transcript = { title, language, target, cues, translation, which };
    await saveTranscript(fileName(title), format, transcript).catch((error) => problem(this.place, error.message));
  }

  async deleteSound() {
    const { done } = await ask({ type: "delete_sound", record: this.record.id }).catch(() => ({ done: false }));
    if (!done) return problem(this.place, t("The sound could not be deleted; try again."));
    this.record.sound = false;
    this.showSound();
    this.status(t("The sound is deleted; the text stays."));
    this.listChanged();
  }
}

/** A text as nodes, in which the words searched for are marked. */
export function withMarks(text, query) {
  return marked(text, query).map(({ text: part, hit }) => (hit ? make("mark", {}, part) : part));
}
