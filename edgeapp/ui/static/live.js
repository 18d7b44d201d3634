// The Live tab: sends the microphone's audio and shows the captions.

import { openMicrophone } from "/edgeapp/static/microphone.js";
import { clock, fillPickers, make, picked, problem, saveTranscript, onPickerOptions } from "/edgeapp/static/parts.js";
import { keeps, on, send, sendAudio } from "/edgeapp/static/session.js";
import { Wave } from "/edgeapp/static/wave.js";

const NEAR_PX = 80;

class Live {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.lines = new Map();
    this.cut = new Map();
    this.cues = [];
    this.translated = [];
    this.language = "";
    this.target = "";
    this.microphone = null;
    this.wave = new Wave(this.find(".ea-wave"));
    this.follow = true;
    this.listen();
  }

  listen() {
    onPickerOptions((options) => {
      this.options = options;
      fillPickers(this.root, options);
      this.update();
    });
    this.find("[name=language]").onchange = () => {
      fillPickers(this.root, this.options);
      this.update();
    };
    this.find("[name=target]").onchange = () => this.update();
    this.find(".ea-start").onclick = () => this.toggle();
    this.find(".ea-clear").onclick = () => this.clear();
    this.find(".ea-save").onclick = () => this.save();
    this.find(".ea-beside").onclick = () => this.beside();
    this.find(".ea-big-on").onclick = () => this.big(true);
    this.find(".ea-big-off").onclick = () => this.big(false);
    addEventListener("keydown", (event) => event.key === "Escape" && this.big(false));
    const captions = this.find(".ea-captions");
    captions.onscroll = () => {
      const left = captions.scrollHeight - captions.scrollTop - captions.clientHeight;
      this.follow = left < NEAR_PX;
      this.find(".ea-newest").hidden = this.follow;
    };
    this.find(".ea-newest").onclick = () => {
      this.follow = true;
      this.scroll();
    };
    on("live_listening", ({ language }) => {
      this.language = language ?? "";
      this.state("listening");
    });
    on("live_line", (line) => this.show(line));
    on("live_cue", ({ translated, start, end, text }) => {
      (translated ? this.translated : this.cues).push({ start, end, text });
      this.update();
    });
    on("live_status", ({ lag }) => {
      this.find(".ea-lag").textContent = `lag ${lag.toFixed(1)} s`;
      this.find(".ea-lag").classList.toggle("ea-late", lag > 2);
    });
    on("error", ({ kind, message }) => {
      if (kind !== "live") return;
      // A session that did not start sends no "idle".
      if (this.root.dataset.state !== "listening") this.ended();
      problem(this.root, message);
    });
    on("idle", ({ kind }) => kind === "live" && this.ended());
    on("lost", () => this.ended());
  }

  state(name) {
    this.root.dataset.state = name;
    const labels = { idle: "Start", starting: "Starting", listening: "Stop", stopping: "Finishing" };
    this.find(".ea-start-text").textContent = labels[name];
    this.find(".ea-start").disabled = name === "stopping";
    for (const select of this.root.querySelectorAll(".ea-bar select")) {
      select.disabled = name !== "idle";
    }
  }

  toggle() {
    const state = this.root.dataset.state;
    if (state === "idle") this.begin();
    else if (state !== "stopping") this.stop();
  }

  async begin() {
    problem(this.root, "");
    this.state("starting");
    const choice = picked(this.root);
    // A second click while the browser asks for the microphone makes this attempt stale.
    const attempt = (this.attempt = {});
    try {
      // Audio that is recorded before the server knows of the session.
      const early = [];
      let deliver = (audio) => early.push(audio);
      const microphone = await openMicrophone((audio, peak) => {
        deliver(audio);
        this.wave.add(peak);
      });
      if (this.attempt !== attempt) return await microphone.close();
      this.microphone = microphone;
      const rate = Math.round(this.microphone.rate);
      if (!send({ type: "live", ...choice, rate, keep: keeps() })) {
        throw new Error("Not connected to EdgeApp yet; press Start again.");
      }
      this.forget();
      this.target = choice.target ?? "";
      this.find(".ea-which").hidden = !this.target;
      early.forEach(sendAudio);
      deliver = sendAudio;
      this.microphone.track.onended = () => this.stop();
      this.began = performance.now();
      this.ticking = setInterval(() => this.tick(), 250);
      this.tick();
    } catch (error) {
      if (this.attempt !== attempt) return;
      this.ended();
      problem(this.root, error.message);
    }
  }

  tick() {
    this.find(".ea-clock").textContent = clock((performance.now() - this.began) / 1000);
  }

  async stop() {
    this.state("stopping");
    if (!this.microphone) return this.ended();
    await this.release();
    if (!send({ type: "stop", kind: "live" })) this.ended();
  }

  async release() {
    clearInterval(this.ticking);
    const microphone = this.microphone;
    this.microphone = null;
    await microphone?.close();
    this.wave.clear();
  }

  ended() {
    this.attempt = null;
    this.release();
    this.state("idle");
    this.update();
  }

  show({ id, start, text, tail, translation, running }) {
    const cut = this.cut.get(id) ?? { text: 0, translation: 0 };
    let line = this.lines.get(id);
    if (!line) {
      line = make("li", { class: "ea-line-of" });
      line.append(
        make("time", { class: "ea-chip" }, clock(start)),
        make("p", { class: "ea-said" }),
        make("p", { class: "ea-meant" }),
      );
      this.lines.set(id, line);
      this.find(".ea-lines").append(line);
    }
    line.hidden = !(text || tail).slice(cut.text);
    fillText(line.querySelector(".ea-said"), text.slice(cut.text), tail);
    fillText(line.querySelector(".ea-meant"), translation.slice(cut.translation), running);
    line.dataset.text = text.length;
    line.dataset.translation = translation.length;
    this.update();
    this.scroll();
  }

  scroll() {
    const captions = this.find(".ea-captions");
    if (this.follow) captions.scrollTop = captions.scrollHeight;
  }

  update() {
    const idle = this.root.dataset.state === "idle";
    this.find(".ea-empty").hidden = this.lines.size > 0 || !idle;
    this.find(".ea-clear").hidden = !this.lines.size;
    this.find(".ea-after").hidden = !this.lines.size || !idle;
    this.find(".ea-save").disabled = !this.cues.length;
    this.find(".ea-beside").hidden = !this.find("[name=target]").value;
  }

  clear() {
    // The text that the running line already has must not come back with its next words.
    for (const [id, { dataset }] of this.lines) {
      this.cut.set(id, { text: Number(dataset.text), translation: Number(dataset.translation) });
    }
    this.wipe();
  }

  forget() {
    this.cut.clear();
    this.wipe();
  }

  wipe() {
    this.lines.clear();
    this.cues = [];
    this.translated = [];
    this.find(".ea-lines").replaceChildren();
    this.update();
  }

  async save() {
    const transcript = {
      language: this.language,
      cues: this.cues,
      translation: this.translated,
      target: this.target,
      translated: this.find("[name=which]").value && this.target,
    };
    const when = new Date().toISOString().slice(0, 16).replace(/[:T]/g, "-");
    await saveTranscript(`captions-${when}`, this.find("[name=format]").value, transcript).catch(
      (error) => problem(this.root, error.message),
    );
  }

  beside() {
    const wide = this.root.dataset.layout !== "beside";
    this.root.dataset.layout = wide ? "beside" : "below";
    this.find(".ea-beside").setAttribute("aria-pressed", wide);
    this.scroll();
  }

  big(wanted) {
    if (this.root.classList.contains("ea-big") === wanted) return;
    this.root.classList.toggle("ea-big", wanted);
    this.find(".ea-big-off").hidden = !wanted;
    if (wanted) document.documentElement.requestFullscreen?.().catch(() => {});
    else if (document.fullscreenElement) document.exitFullscreen();
    this.find(wanted ? ".ea-big-off" : ".ea-big-on").focus();
    this.scroll();
  }
}

/** Show final text and the tail that may still change, which is hidden from screen readers. */
function fillText(place, final, tail) {
  const parts = [final];
  if (tail) parts.push(make("span", { class: "ea-tail", "aria-hidden": "true" }, tail));
  if (final && tail && !/^\s/.test(tail)) parts.splice(1, 0, " ");
  place.replaceChildren(...parts);
}

export const start = (element) => new Live(element.querySelector(".ea-live"));
