// The Models tab: installed models, which of them are loaded, and downloads.

import { beginDownload, cancelDownload, onDownload } from "/edgeapp/static/download.js";
import { reloadPickerOptions, make, problem, size } from "/edgeapp/static/parts.js";
import { ask, on } from "/edgeapp/static/session.js";
import { fromServer, languageName, plural, t } from "/edgeapp/static/texts.js";

const REFRESH_MS = 3000;
const SOURCES = {
  bundled: t("bundled"), cache: t("downloaded"), folder: t("folder"), hub: t("downloaded"),
  other: t("another program's"),
};
const TASKS = { asr: t("Recognition"), translation: t("Translation"), reading: t("Pictures") };
const ACTS = {
  load: { text: t("Load"), busy: t("Loading…"), label: (name) => t("Load {name}", { name }) },
  unload: { text: t("Unload"), busy: t("Unloading…"), label: (name) => t("Unload {name}", { name }) },
  remove: { text: t("Remove"), busy: t("Removing…"), label: (name) => t("Remove {name}", { name }) },
};
const KNOWN = ["tiny.en", "base.en", "small.en", "small", "medium", "large-v3-turbo", "large-v3",
  "distil-small.en", "distil-large-v3", "opus-mt-en-de", "opus-mt-de-en", "opus-mt-en-fr",
  "opus-mt-fr-en", "opus-mt-en-es", "opus-mt-es-en"];

class Models {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.busy = null;
    this.planned = ""; // the name of the model that was looked up
    this.pull = null; // the name of the model that is being downloaded, and the elements that show it
    this.find("#ea-known").append(...KNOWN.map((name) => new Option("", name)));
    this.find("form").onsubmit = (event) => {
      event.preventDefault();
      this.look(this.find("[name=name]").value.trim());
    };
    on("hello", () => this.refresh());
    addEventListener("ea-tab", ({ detail }) => detail === "models" && this.refresh());
    setInterval(() => this.seen && !this.busy && this.refresh(), REFRESH_MS);
    onDownload((state) => this.download(state));
  }

  /** Show the server's download. @param {import("/edgeapp/static/download.js").Download} state */
  download({ state, name, done, total, note, message }) {
    if (state === "refused") return this.refused(message);
    if (state === "running") this.progress({ name, done, total });
    else if (state === "failed") this.ended(make("p", { class: "ea-wrong" }, message));
    else if (state === "cancelled") this.ended(make("p", {}, t("Cancelled; the download resumes next time.")));
    else if (state === "done") this.ended(make("p", {}, note ? fromServer(note) : t("{name} is installed.", { name })));
    else if (this.pull) this.ended(); // while there was no connection
    this.offer();
    if (state === "done" || state === "none") this.refresh();
  }

  get seen() {
    return this.root.isConnected && document.body.dataset.tab === "models" && !document.hidden;
  }

  async refresh() {
    await ask({ type: "models" }).then((reply) => this.show(reply), () => {});
  }

  show({ models, memory, running, limit, can_change: canChange }) {
    const loaded = models.filter((model) => model.loaded);
    const said = [
      t("{count} on this machine, {loaded} loaded.", { count: models.length, loaded: loaded.length }),
      memory && t("{size} of memory in use.", { size: size(memory) }),
      t("{running} of {limit} places are taken.", { running, limit }),
    ];
    this.find(".ea-summary").textContent = said.filter(Boolean).join(" ");
    this.find("form").hidden = !canChange;
    const drawn = JSON.stringify([models, canChange, this.busy]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const focus = document.activeElement?.dataset?.key;
    this.find(".ea-rows").replaceChildren(...models.map((model) => this.row(model, canChange)));
    if (focus) this.find(`[data-key="${CSS.escape(focus)}"]`)?.focus();
  }

  row(model, canChange) {
    const { name, task, bytes, source, languages, loaded } = model;
    const facts = [TASKS[task], languagesOf(languages), t("{size} on disk", { size: size(bytes) })].filter(Boolean).join(" · ");
    const row = make("li", { class: loaded ? "ea-running" : "" });
    const title = make("h2", {}, name, make("span", { class: "ea-chip" }, SOURCES[source]));
    row.append(make("div", { class: "ea-what" }, title, make("p", {}, facts)));
    row.append(make("p", { class: "ea-state" }, stateOf(loaded)));
    const buttons = make("div", { class: "ea-buttons" });
    if (loaded) buttons.append(this.button("unload", name, loaded.users > 0));
    else buttons.append(this.button("load", name));
    if (source === "cache" && canChange) buttons.append(this.button("remove", name));
    row.append(buttons);
    return row;
  }

  button(type, name, used = false) {
    const { text, busy: busyText, label } = ACTS[type];
    const busy = this.busy?.name === name && this.busy.type === type;
    const made = make("button", { type: "button", class: "ea-quiet" }, busy ? busyText : text);
    made.dataset.key = `${type} ${name}`;
    made.setAttribute("aria-label", label(name));
    made.disabled = this.busy !== null || used;
    if (used) made.title = t("In use now");
    made.onclick = () => {
      if (type !== "remove" || confirm(t("Remove {name} from this machine?", { name }))) this.change(type, name);
    };
    return made;
  }

  async change(type, name) {
    problem(this.root, "");
    this.busy = { type, name };
    await this.refresh();
    try {
      const reply = await ask({ type, name });
      this.busy = null;
      this.show(reply);
      if (type === "remove") reloadPickerOptions();
    } catch (error) {
      this.busy = null;
      problem(this.root, error.message);
      await this.refresh();
    }
  }

  /** Show elements in a part of the tab; without any, hide it. */
  put(selector, ...inside) {
    const place = this.find(selector);
    place.replaceChildren(...inside);
    place.hidden = !inside.length;
  }

  /** Show what looking a model up has found. */
  plan(...inside) {
    this.planned = "";
    this.put(".ea-plan", ...inside);
  }

  /** Show how the download has ended. */
  ended(...inside) {
    if (this.pull?.name === this.planned) this.plan();
    this.pull = null;
    this.put(".ea-pull", ...inside);
  }

  /** Let the model that was looked up be downloaded, unless a download is running. */
  offer() {
    const button = this.find(".ea-plan button");
    if (button) button.disabled = this.pull !== null;
  }

  async look(name) {
    if (!this.pull) this.put(".ea-pull"); // how an earlier download has ended
    if (!name) return this.plan();
    this.plan(make("p", {}, t("Asking the hub…")));
    try {
      const { repository, bytes, missing, files, note } = await ask({ type: "plan", name });
      const here = missing < bytes ? ` ${t("({size} downloaded already)", { size: size(bytes - missing) })}` : "";
      const button = make("button", { type: "button", class: "ea-plain" }, t("Download {size}", { size: size(missing) }));
      button.onclick = () => beginDownload(name);
      const list = make("ul", {}, ...files.map((file) => make("li", {}, `${file.name}, ${size(file.bytes)}`)));
      const details = make("details", {}, make("summary", {}, plural(files.length, "1 file", "{count} files")), list);
      const said = note ? [make("p", {}, fromServer(note))] : [];
      this.plan(make("p", {}, `${repository}: ${size(bytes)}${here}`), ...said, details, button);
      this.planned = name;
      this.offer();
    } catch (error) {
      this.refused(error.message);
    }
  }

  refused(message) {
    this.plan(make("p", { class: "ea-wrong" }, message));
  }

  /** Show the progress. The elements are made once: a button that is replaced cannot be clicked. */
  progress({ name, done, total }) {
    if (this.pull?.name !== name) {
      const cancel = make("button", { type: "button", class: "ea-quiet" }, t("Cancel"));
      cancel.onclick = cancelDownload;
      const bar = make("progress", { "aria-label": t("Download of {name}", { name }) });
      const far = make("span", { "aria-live": "off" });
      if (this.planned === name) this.plan();
      this.put(".ea-pull", make("p", {}, `${name}: `, far), bar, cancel);
      this.pull = { name, bar, far };
    }
    this.pull.bar.max = total || 1;
    this.pull.bar.value = done;
    this.pull.far.textContent = t("{done} of {total}", { done: size(done), total: size(total) });
  }
}

/** The languages of a model in words. @param {{source: string[], target: string[]}} languages */
function languagesOf({ source, target }) {
  const words = ([first, ...rest]) =>
    rest.length ? plural(rest.length + 1, "1 language", "{count} languages") : languageName(first.code, first.name);
  if (!target.length) return source.length ? words(source) : "";
  return `${source.length ? words(source) : t("Several")} → ${words(target)}`;
}

/** @param {{compute_type: string, device: string, bytes: number} | null} loaded */
function stateOf(loaded) {
  if (!loaded) return t("not loaded");
  const [type, device] = [loaded.compute_type, { cpu: "CPU", cuda: "GPU" }[loaded.device]];
  if (!loaded.bytes) return t("{type} on {device}, in memory", { type, device });
  return t("{type} on {device}, {size} in memory", { type, device, size: size(loaded.bytes) });
}

export const start = (element) => new Models(element.querySelector(".ea-models"));
