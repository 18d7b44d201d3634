// The History tab: the list of past sessions, with search; the open one is beside it.

import { byDay, distinctTitles, KINDS } from "/edgeapp/static/history/listing.js";
import { RecordView, withMarks } from "/edgeapp/static/history/record.js";
import { clock, make, problem } from "/edgeapp/static/parts.js";
import { ask, hello, keeps, on } from "/edgeapp/static/session.js";
import { locale, t } from "/edgeapp/static/texts.js";
import { toast } from "/edgeapp/static/toast.js";

const PAUSE_MS = 200;

class History {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.records = [];
    this.asked = 0; // lists so far
    this.view = new RecordView(this.find(".ea-record"));
    this.view.listChanged = () => this.list();
    this.view.closed = () => this.close();
    this.view.deleted = (record) => this.remove({ type: "delete", record: record.id }, t("“{title}” is deleted.", { title: record.title }));
    const search = this.find("[name=search]");
    search.oninput = () => {
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.list(), PAUSE_MS);
    };
    const keep = this.find("[name=keep]");
    keep.onchange = () => localStorage.setItem("ea-keep", keep.checked ? "yes" : "no");
    this.find(".ea-more").onclick = () => this.list(this.records.length);
    this.find(".ea-clear").onclick = () => this.remove({ type: "clear" }, t("The whole history is deleted."));
    on("hello", ({ history }) => {
      keep.checked = history && keeps();
      keep.disabled = !history;
      this.list();
    });
    addEventListener("ea-tab", ({ detail }) => detail === "history" && hello() && this.list());
  }

  get query() {
    return this.find("[name=search]").value;
  }

  async list(offset = 0) {
    const search = this.query;
    const asked = ++this.asked;
    let reply;
    try {
      reply = await ask({ type: "history", search, offset });
    } catch (error) {
      return problem(this.root, error.message);
    }
    problem(this.root, "");
    // An answer may overtake a later one: what it lists may be deleted since.
    if (asked !== this.asked || search !== this.query) return;
    this.records = offset ? [...this.records, ...reply.records] : reply.records;
    const titles = distinctTitles(this.records);
    const days = byDay(this.records, new Date()).map(({ day, records }) =>
      make("li", {}, make("h2", { class: "ea-day" }, day), make("ul", {}, ...records.map((each) => this.row(each, titles.get(each.id))))),
    );
    this.find(".ea-records").replaceChildren(...days);
    this.find(".ea-more").hidden = !reply.more;
    this.find(".ea-clear").hidden = !this.records.length || Boolean(search);
    const none = this.records.length ? "" : search ? t("Nothing was found.") : t("Nothing here yet.");
    this.find(".ea-none").textContent = reply.on ? none : t("The history is switched off.");
  }

  row(record, title) {
    const open = make("button", { type: "button", class: "ea-entry" });
    const time = new Date(record.created).toLocaleTimeString(locale, { timeStyle: "short" });
    const facts = [KINDS[record.kind], time];
    if (record.duration_s) facts.push(clock(record.duration_s));
    if (record.sound) facts.push(t("with sound"));
    open.append(
      make("strong", {}, ...withMarks(title, this.query)),
      make("span", { class: "ea-facts" }, facts.join(" · ")),
    );
    // The default title is the beginning of the text.
    const inTitle = record.excerpt.startsWith(record.title.replace(/…$/, ""));
    if (!inTitle) open.append(make("span", { class: "ea-excerpt" }, ...withMarks(record.excerpt, this.query)));
    open.onclick = () => this.open(record.id);
    open.setAttribute("aria-current", this.view.record?.id === record.id);
    return make("li", {}, open);
  }

  async open(id) {
    try {
      await this.view.saver.keep();
      const reply = await ask({ type: "record", record: id });
      await new Promise((done) => setTimeout(done)); // a long one took its time to be read
      this.root.dataset.open = "yes"; // the record has its place before it scrolls
      this.view.show(reply, this.query);
    } catch (error) {
      problem(this.root, error.message);
    }
    this.list();
  }

  close() {
    this.view.hide();
    this.root.dataset.open = "no";
    this.list();
    this.find("[name=search]").focus();
  }

  /** Delete records; for a minute they can be restored. */
  async remove(message, said) {
    const opened = this.view.record?.id;
    await this.view.saver.keep();
    let deleted;
    try {
      ({ deleted } = await ask(message));
    } catch (error) {
      return problem(this.root, error.message);
    }
    this.close();
    toast(said, async () => {
      const { restored } = await ask({ type: "restore", records: deleted }).catch(() => ({ restored: 0 }));
      if (!restored) return toast(t("It could not be restored."));
      if (deleted.length === 1 && opened === deleted[0]) this.open(opened);
      else this.list();
    });
  }
}

export const start = (element) => new History(element.querySelector(".ea-history"));
