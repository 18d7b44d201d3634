// The Models tab: installed models, which of them are loaded, and downloads.

import { reloadPickerOptions, make, problem, size } from "/edgeapp/static/parts.js";
import { ask, on, send } from "/edgeapp/static/session.js";

const REFRESH_MS = 3000;
const SOURCES = {
  bundled: "bundled", cache: "downloaded", folder: "folder", hub: "downloaded",
  other: "another program's",
};
const TASKS = { asr: "Recognition", translation: "Translation" };
const KNOWN = ["tiny.en", "base.en", "small.en", "small", "medium", "large-v3-turbo", "large-v3",
  "distil-small.en", "distil-large-v3", "opus-mt-en-de", "opus-mt-de-en", "opus-mt-en-fr",
  "opus-mt-fr-en", "opus-mt-en-es", "opus-mt-es-en"];

class Models {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.busy = null;
    this.find("#ea-known").append(...KNOWN.map((name) => new Option("", name)));
    this.find("form").onsubmit = (event) => {
      event.preventDefault();
      this.look(this.find("[name=name]").value.trim());
    };
    on("hello", () => this.refresh());
    addEventListener("ea-tab", ({ detail }) => detail === "models" && this.refresh());
    setInterval(() => this.seen && !this.busy && this.refresh(), REFRESH_MS);
    on("pull_progress", (state) => this.progress(state));
    on("pull_done", ({ name, note }) => {
      this.plan(make("p", {}, note ?? `${name} is installed.`));
      reloadPickerOptions();
      this.refresh();
    });
    on("error", ({ kind, message }) => kind === "pull" && this.refused(message));
    on("lost", () => {
      if (this.pull) this.refused(`The connection is lost; the download of ${this.pull.name} resumes next time.`);
    });
    on("idle", ({ kind, cancelled }) => {
      if (kind === "pull" && cancelled) this.plan(make("p", {}, "Cancelled; the download resumes next time."));
    });
  }

  get seen() {
    return this.root.isConnected && document.body.dataset.tab === "models" && !document.hidden;
  }

  async refresh() {
    await ask({ type: "models" }).then((reply) => this.show(reply), () => {});
  }

  show({ models, memory, running, limit, can_change: canChange }) {
    const loaded = models.filter((model) => model.loaded);
    const held = memory ? ` ${size(memory)} of memory in use.` : "";
    const places = `${running} of ${limit} places are taken.`;
    this.find(".ea-summary").textContent =
      `${models.length} on this machine, ${loaded.length} loaded.${held} ${places}`;
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
    const facts = [TASKS[task], languages, `${size(bytes)} on disk`].filter(Boolean).join(" · ");
    const row = make("li", { class: loaded ? "ea-running" : "" });
    const title = make("h2", {}, name, make("span", { class: "ea-chip" }, SOURCES[source]));
    row.append(make("div", { class: "ea-what" }, title, make("p", {}, facts)));
    const place = loaded && { cpu: "CPU", cuda: "GPU" }[loaded.device];
    const state = loaded ? `${loaded.compute_type} on ${place}, ${size(loaded.bytes)} in memory` : "not loaded";
    row.append(make("p", { class: "ea-state" }, state));
    const buttons = make("div", { class: "ea-buttons" });
    if (loaded) buttons.append(this.button("unload", "Unload", name, loaded.users > 0));
    else buttons.append(this.button("load", "Load", name));
    if (source === "cache" && canChange) buttons.append(this.button("remove", "Remove", name));
    row.append(buttons);
    return row;
  }

  button(type, label, name, used = false) {
    const busy = this.busy?.name === name && this.busy.type === type;
    const made = make("button", { type: "button", class: "ea-quiet" }, busy ? `${label}ing…` : label);
    made.dataset.key = `${type} ${name}`;
    made.setAttribute("aria-label", `${label} ${name}`);
    made.disabled = this.busy !== null || used;
    if (used) made.title = "In use now";
    made.onclick = () => {
      if (type !== "remove" || confirm(`Remove ${name} from this machine?`)) this.change(type, name);
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

  plan(...inside) {
    this.pull = null;
    const place = this.find(".ea-plan");
    place.replaceChildren(...inside);
    place.hidden = !inside.length;
  }

  async look(name) {
    if (!name) return this.plan();
    this.plan(make("p", {}, "Asking the hub…"));
    try {
      const { repository, bytes, missing, files, note } = await ask({ type: "plan", name });
      const here = missing < bytes ? ` (${size(bytes - missing)} downloaded already)` : "";
      const button = make("button", { type: "button", class: "ea-plain" }, `Download ${size(missing)}`);
      button.onclick = () => {
        send({ type: "pull", name });
        this.progress({ name, done: 0, total: missing });
      };
      const list = make("ul", {}, ...files.map((file) => make("li", {}, `${file.name}, ${size(file.bytes)}`)));
      const details = make("details", {}, make("summary", {}, `${files.length} files`), list);
      const said = note ? [make("p", {}, note)] : [];
      this.plan(make("p", {}, `${repository}: ${size(bytes)}${here}`), ...said, details, button);
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
      const cancel = make("button", { type: "button", class: "ea-quiet" }, "Cancel");
      cancel.onclick = () => send({ type: "cancel", kind: "pull" });
      const bar = make("progress", { "aria-label": `Download of ${name}` });
      const far = make("span", { "aria-live": "off" });
      this.plan(make("p", {}, `${name}: `, far), bar, cancel);
      this.pull = { name, bar, far };
    }
    this.pull.bar.max = total || 1;
    this.pull.bar.value = done;
    this.pull.far.textContent = `${size(done)} of ${size(total)}`;
  }
}

export const start = (element) => new Models(element.querySelector(".ea-models"));
