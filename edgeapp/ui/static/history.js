// The History tab: search, read, save and delete past sessions.

import { clock, make, problem, saveTranscript } from "/edgeapp/static/parts.js";
import { ask, hello, keeps, on } from "/edgeapp/static/session.js";

const PAUSE_MS = 200;
const KINDS = { live: "Live", file: "File", text: "Text" };

class History {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.records = [];
    const search = this.find("[name=search]");
    search.oninput = () => {
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.list(), PAUSE_MS);
    };
    const keep = this.find("[name=keep]");
    keep.onchange = () => localStorage.setItem("ea-keep", keep.checked ? "yes" : "no");
    this.find(".ea-more").onclick = () => this.list(this.records.length);
    this.find(".ea-clear").onclick = () => this.clear();
    on("hello", ({ history }) => {
      keep.checked = history && keeps();
      keep.disabled = !history;
      this.list();
    });
    addEventListener("ea-tab", ({ detail }) => detail === "history" && hello() && this.list());
  }

  async list(offset = 0) {
    const search = this.find("[name=search]").value;
    let reply;
    try {
      reply = await ask({ type: "history", search, offset });
    } catch (error) {
      return problem(this.root, error.message);
    }
    problem(this.root, "");
    if (search !== this.find("[name=search]").value) return;
    this.records = offset ? [...this.records, ...reply.records] : reply.records;
    this.find(".ea-records").replaceChildren(...this.records.map((record) => this.row(record)));
    this.find(".ea-more").hidden = !reply.more;
    this.find(".ea-clear").hidden = !this.records.length || Boolean(search);
    const none = this.records.length ? "" : search ? "Nothing was found." : "Nothing here yet.";
    this.find(".ea-none").textContent = reply.on ? none : "The history is switched off.";
  }

  row(record) {
    const open = make("button", { type: "button", class: "ea-entry" });
    const facts = [KINDS[record.kind], when(record.created)];
    if (record.duration_s) facts.push(clock(record.duration_s));
    open.append(
      make("strong", {}, record.title),
      make("span", { class: "ea-facts" }, facts.join(" · ")),
    );
    // The default title is the beginning of the text.
    const inTitle = record.excerpt.startsWith(record.title.replace(/…$/, ""));
    if (!inTitle) open.append(make("span", { class: "ea-excerpt" }, record.excerpt));
    open.onclick = () => this.open(record.id);
    open.setAttribute("aria-current", this.shown === record.id);
    return make("li", {}, open);
  }

  async open(id) {
    try {
      this.show(await ask({ type: "record", record: id }));
      this.shown = id;
    } catch (error) {
      problem(this.root, error.message);
    }
    this.list();
  }

  show({ record, cues, translation, text, translated }) {
    const place = this.find(".ea-record");
    const back = make("button", { type: "button", class: "ea-quiet ea-back" }, "← All");
    back.onclick = () => this.close();
    const title = make("input", { type: "text", class: "ea-name", "aria-label": "Title", value: record.title });
    title.onchange = () => ask({ type: "rename", record: record.id, title: title.value }).then(() => this.list());
    const facts = [KINDS[record.kind], when(record.created), record.model, record.target && `into ${record.target}`];
    const remove = make("button", { type: "button", class: "ea-quiet" }, "Delete");
    remove.onclick = () => this.remove(record.id);
    const saves = this.saves(record, { cues, translation, text, translated });
    const bar = make("div", { class: "ea-line" }, ...saves, make("span", { class: "ea-space" }), remove);
    const said = record.kind === "text" ? [pair(text, translated)] : rows(cues, translation);
    place.replaceChildren(
      make("div", { class: "ea-line" }, back),
      title,
      make("p", { class: "ea-facts" }, facts.filter(Boolean).join(" · ")),
      make("div", { class: "ea-body" }, ...said),
      bar,
    );
    place.hidden = false;
    this.root.dataset.open = "yes";
    place.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  saves(record, { cues, translation, translated }) {
    const made = [];
    for (const other of translated ? [false, true] : [false]) {
      for (const format of record.kind === "text" ? ["txt"] : ["txt", "srt", "vtt", "json"]) {
        if (other && format === "json") continue;
        const label = other ? `${format}, ${record.target ?? "translation"}` : format;
        const button = make("button", { type: "button", class: "ea-quiet" }, label);
        const transcript = { language: record.language, cues, translation, target: record.target, translated: other };
        button.onclick = () =>
          saveTranscript(record.title.slice(0, 60).trim() || "session", format, transcript).catch((error) =>
            problem(this.root, error.message),
          );
        made.push(button);
      }
    }
    return made;
  }

  close() {
    this.shown = null;
    this.find(".ea-record").hidden = true;
    this.root.dataset.open = "no";
    this.list();
    this.find("[name=search]").focus();
  }

  async remove(id) {
    if (!confirm("Delete this session permanently?")) return;
    await ask({ type: "delete", record: id }).catch((error) => problem(this.root, error.message));
    this.close();
  }

  async clear() {
    if (!confirm("Delete the whole history permanently?")) return;
    await ask({ type: "clear" }).catch((error) => problem(this.root, error.message));
    this.close();
  }
}

function when(created) {
  return new Date(created).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function rows(cues, translation) {
  const left = [...translation];
  return cues.map((cue, i) => {
    const next = cues[i + 1]?.start ?? Infinity;
    const meant = [];
    while (left.length && left[0].start < next - 0.01) meant.push(left.shift().text);
    return make("div", { class: "ea-row" }, make("time", { class: "ea-chip" }, clock(cue.start)), pair(cue.text.trim(), meant.join(" ")));
  });
}

function pair(text, translated) {
  const both = make("div", { class: "ea-pair" }, make("p", {}, text));
  if (translated) both.append(make("p", { class: "ea-meant" }, translated));
  return both;
}

export const start = (element) => new History(element.querySelector(".ea-history"));
