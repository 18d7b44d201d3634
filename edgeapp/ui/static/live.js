// The Live tab: sends the microphone's audio and shows the captions.

import { Captions } from "/edgeapp/static/captions.js";
import { doubtSwitch } from "/edgeapp/static/doubt-switch.js";
import { Heard } from "/edgeapp/static/heard.js";
import { LiveLine } from "/edgeapp/static/live-line.js";
import { SOURCES, openMicrophone, openSample, sharesTabs } from "/edgeapp/static/microphone.js";
import { Projector } from "/edgeapp/static/projector.js";
import { clock, download, fillPickers, picked, problem, remember, saveTranscript, showNotes, onPickerOptions } from "/edgeapp/static/parts.js";
import { RecognizerCard } from "/edgeapp/static/recognizer-card.js";
import { hello, keeps, on, send } from "/edgeapp/static/session.js";
import { Share, shared } from "/edgeapp/static/share.js";
import { decimal, fromServer, t } from "/edgeapp/static/texts.js";
import { toast } from "/edgeapp/static/toast.js";
import { Wave } from "/edgeapp/static/wave.js";
import { Welcome } from "/edgeapp/static/welcome.js";

const LATE_S = 2;
// Switches, and where localStorage has their states.
const SWITCHES = { ".ea-keep-sound": "ea-keep-sound", ".ea-correct": "ea-correct" };
const SPEAKERS = [t("Me"), t("Them")]; // of two channels
const SILENCE_S = 1.2; // ends the running line when the recording pauses

class Live {
  constructor(root) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.captions = new Captions(root, { doubts: true });
    doubtSwitch(this.find(".ea-mark-doubts"), () => this.captions.markAll());
    this.captions.changed = () => this.update();
    this.captions.hear = (start, end) => {
      if (!this.heard?.play(start, end)) toast(t("Only the last five minutes can be heard again."));
    };
    this.heard = null;
    this.welcome = new Welcome(root, () => this.sample());
    this.share = new Share(root);
    this.projector = new Projector(root, () => this.captions.toEnd());
    this.card = new RecognizerCard(root, t("Captions start as soon as it is here, if this tab can be seen."));
    this.unwait = null; // while Start waits for a recognizer: ends that
    this.notes = []; // about the session
    this.language = "";
    this.target = "";
    this.microphone = null;
    this.line = null;
    this.paused = false;
    this.wave = new Wave(this.find(".ea-wave"));
    this.listen();
    this.goOn();
  }

  listen() {
    for (const [selector, key] of Object.entries(SWITCHES)) {
      const button = this.find(selector);
      button.setAttribute("aria-pressed", String(localStorage.getItem(key) === "yes"));
      button.onclick = () => {
        const wanted = !this.isOn(selector);
        button.setAttribute("aria-pressed", String(wanted));
        localStorage.setItem(key, wanted ? "yes" : "no");
      };
    }
    this.find("[name=sound]").parentElement.hidden = !sharesTabs();
    this.find(".ea-save-sound").onclick = () => this.saveSound();
    document.addEventListener("visibilitychange", () => this.stayAwake());
    remember(this.root, "ea-live-choice");
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
    this.find(".ea-pause").onclick = () => this.pause();
    this.find(".ea-clear").onclick = () => this.clear();
    this.find(".ea-save").onclick = () => this.save();
    this.find(".ea-beside").onclick = () => this.beside();
    this.find(".ea-big-on").onclick = () => this.big(true);
    this.find(".ea-big-off").onclick = () => this.big(false);
    addEventListener("keydown", (event) => event.key === "Escape" && this.big(false));
    addEventListener("pagehide", () => this.line?.store());
    on("live_listening", (began) => this.listening(began));
    on("live_line", (line) => this.captions.show(line));
    on("live_cue", (cue) => {
      this.captions.addCue(cue);
      this.update();
    });
    on("live_note", ({ message }) => this.note([...this.notes, message]));
    on("live_status", ({ lag }) => {
      this.find(".ea-lag").textContent = t("lag {seconds} s", { seconds: decimal(lag, 1) });
      this.find(".ea-lag").hidden = lag <= LATE_S;
    });
    on("error", ({ kind, message }) => {
      if (kind !== "live" || !this.line) return;
      this.ended();
      problem(this.root, message);
    });
    on("idle", ({ kind }) => kind === "live" && this.ended());
    on("lost", () => this.tick());
  }

  /** Whether a switch is on. */
  isOn(selector) {
    return this.find(selector).getAttribute("aria-pressed") === "true";
  }

  note(notes) {
    this.notes = notes;
    showNotes(this.root, notes);
  }

  state(name) {
    this.root.dataset.state = name;
    const labels = { idle: t("Start"), starting: t("Starting"), listening: t("Stop"), stopping: t("Finishing") };
    this.find(".ea-start-text").textContent = labels[name];
    this.find(".ea-start").disabled = name === "stopping";
    this.find(".ea-pause").hidden = name !== "listening";
    // Where there is room: the bar has no pickers while captions run.
    this.find(name === "idle" ? ".ea-after" : ".ea-bar").append(this.find(".ea-mark-doubts"));
    for (const select of this.root.querySelectorAll(".ea-bar select")) {
      select.disabled = name !== "idle";
    }
  }

  toggle() {
    const state = this.root.dataset.state;
    if (state === "idle" && this.unwait) this.wait(false);
    else if (state === "idle" && this.card.lacking) this.wait(true);
    else if (state === "idle") this.begin(SOURCES[this.find("[name=sound]").value]);
    else if (state === "stopping") this.ended();
    else this.stop();
  }

  /** Start as soon as a recognizer is here, or do so no more. */
  wait(wanted) {
    problem(this.root, "");
    this.unwait?.();
    this.unwait = wanted ? this.card.wait(() => this.arrived()) : null;
    this.find(".ea-start-text").textContent = wanted ? t("Waiting") : t("Start");
  }

  /** A recognizer is here, for which Start was pressed. */
  arrived() {
    this.wait(false);
    // A microphone is opened only where it can be seen that it is.
    if (document.hidden || document.body.dataset.tab !== "live") return;
    if (this.root.dataset.state === "idle") this.toggle();
  }

  /** Start with the bundled sample, whose voice the bundled recognizer knows. */
  sample() {
    const bundled = this.card.lacking && this.options.recognizers.find((model) => model.bundled);
    this.begin(openSample, bundled ? { model: bundled.name } : {});
  }

  /** Start a session. open: opens the source of sound. named: choices in place of the pickers'. */
  async begin(open, named = {}) {
    problem(this.root, "");
    this.note([]);
    if (this.unwait) this.wait(false);
    this.state("starting");
    this.update();
    const choice = { ...picked(this.root), ...named };
    // A second click while the browser asks for the microphone makes this attempt stale.
    const attempt = (this.attempt = {});
    try {
      await this.welcome.end();
      // Audio that is recorded before the server knows of the session.
      const early = [];
      const microphone = await this.record(open, (audio) => {
        if (this.attempt === attempt) this.line ? this.deliver(audio) : early.push(audio);
      });
      if (this.attempt !== attempt) return await microphone.close();
      this.microphone = microphone;
      const request = { type: "live", ...choice, rate: Math.round(microphone.rate), keep: keeps(), share: shared() };
      if (this.isOn(".ea-correct")) request.correct = true;
      if (microphone.channels === 2) request.speakers = SPEAKERS;
      const line = new LiveLine(request, (snapshot) => this.resumed(snapshot));
      this.captions.begin(this.seconds ?? 0);
      if (!line.begin()) {
        line.close();
        throw new Error(t("Not connected to EdgeApp yet; press Start again."));
      }
      this.line = line;
      this.began = this.captions.base.time;
      this.heard = new Heard(request.rate, microphone.channels, this.began);
      if (this.isOn(".ea-keep-sound")) this.heard.keep(microphone.stream);
      early.forEach((audio) => this.deliver(audio));
      this.target = choice.target ?? "";
      this.run();
    } catch (error) {
      if (this.attempt !== attempt) return;
      this.ended();
      problem(this.root, error.message);
    }
  }

  /** Recorded sound, for the server and to be heard again. */
  deliver(audio) {
    this.line?.add(audio);
    this.heard?.add(audio);
  }

  record(open, deliver, rate = undefined) {
    return open((audio, peak) => {
      if (this.paused) return;
      deliver(audio);
      this.wave.add(peak);
    }, rate);
  }

  /** The session runs: show it. */
  run() {
    this.find(".ea-which").hidden = !this.target;
    this.microphone.onended = () => this.stop();
    this.ticking = setInterval(() => this.tick(), 250);
    document.body.dataset.recording = "yes";
    this.stayAwake();
    this.tick();
  }

  /** The screen stays on while the microphone is open; a browser forgets it with a hidden page. */
  stayAwake() {
    if (!this.microphone || document.hidden) return;
    navigator.wakeLock?.request("screen").then((lock) => (this.wake = lock), () => {});
  }

  /** Go on after a reload, if captions were running. */
  async goOn() {
    const line = LiveLine.restore((snapshot) => this.resumed(snapshot));
    if (!line) return;
    this.line = line;
    this.began = 0;
    this.target = line.request.target ?? "";
    this.state("starting");
    this.update();
    if (hello()) line.connected();
    try {
      if (line.request.sound) throw new Error(t("Press Start to choose the tab or the screen again."));
      this.heard = new Heard(line.request.rate, 1, line.seconds);
      this.microphone = await this.record(openMicrophone, (audio) => this.deliver(audio), line.request.rate);
      if (this.line === line) this.run();
      else this.release();
    } catch (error) {
      this.stop();
      problem(this.root, t("The page was loaded again. {problem}", { problem: error.message }));
    }
  }

  listening({ language }) {
    this.language = language ?? "";
    if (this.root.dataset.state === "starting") this.state("listening");
  }

  resumed(snapshot) {
    if (snapshot?.began) this.listening(snapshot.began);
    this.note(snapshot ? snapshot.notes.map(fromServer) : []);
    if (snapshot) this.captions.restore(snapshot);
    else this.captions.begin(this.began + this.line.kept.start / this.line.samplesPerS);
    this.update();
  }

  tick() {
    const { line } = this;
    if (!line) return;
    this.seconds = this.began + line.seconds;
    this.find(".ea-clock").textContent = clock(this.seconds);
    const broken = line.check() && this.root.dataset.state !== "idle";
    const kept = this.find(".ea-kept");
    kept.hidden = !broken;
    if (broken) {
      this.find(".ea-lag").hidden = true; // it is from before
      const text = t("Reconnecting, {seconds} s kept", { seconds: Math.floor(line.waiting) });
      if (kept.textContent !== text) kept.textContent = text;
    }
    if (this.root.dataset.state === "stopping") {
      // The end of a session that is not connected may be far away.
      this.find(".ea-start-text").textContent = broken ? t("Give up") : t("Finishing");
      this.find(".ea-start").disabled = !broken;
    }
  }

  pause() {
    this.paused = !this.paused;
    const { line } = this;
    if (this.paused && line) this.deliver(new Int16Array(Math.round(SILENCE_S * line.request.rate) * this.heard.channels).buffer);
    this.heard?.pause(this.paused);
    this.find(".ea-pause").textContent = this.paused ? t("Continue") : t("Pause");
    this.find(".ea-pause").setAttribute("aria-pressed", this.paused);
    document.body.dataset.recording = this.paused ? "paused" : "yes";
    if (this.paused) this.wave.clear();
  }

  async stop() {
    this.state("stopping");
    if (!this.line) return this.ended();
    await this.release();
    this.line?.finish();
  }

  async release() {
    const microphone = this.microphone;
    this.microphone = null;
    if (this.paused) this.pause();
    delete document.body.dataset.recording;
    this.wake?.release().catch(() => {});
    this.wake = null;
    await this.heard?.end();
    await microphone?.close();
    this.wave.clear();
    this.find(".ea-save-sound").hidden = !this.heard?.file;
  }

  ended() {
    const focused = document.activeElement === this.find(".ea-start") || document.activeElement === document.body;
    clearInterval(this.ticking);
    this.attempt = null;
    this.tick();
    // A session that was given up is cancelled, when the server is there.
    if (this.line && !this.line.finished) send({ type: "cancel", kind: "live" });
    this.line?.close();
    this.line = null;
    this.release();
    this.find(".ea-kept").hidden = true;
    const running = this.root.dataset.state !== "idle";
    this.state("idle");
    this.update();
    // A disabled button has lost the focus.
    if (running && focused && document.body.dataset.tab === "live") this.find(".ea-start").focus();
  }

  update() {
    const idle = this.root.dataset.state === "idle";
    const { lines, cues } = this.captions;
    this.find(".ea-empty").hidden = lines.size > 0 || !idle;
    this.find(".ea-clear").hidden = !lines.size;
    this.find(".ea-after").hidden = !cues.length || !idle;
    this.find(".ea-beside").hidden = this.find(".ea-mark-doubts").hidden = !this.find("[name=target]").value;
    this.welcome.update();
  }

  clear() {
    if (this.root.dataset.state !== "idle") return this.captions.clear();
    const { seconds } = this;
    const back = this.captions.forget();
    this.seconds = 0;
    toast(t("The captions were cleared."), () => {
      if (this.root.dataset.state !== "idle" || this.captions.lines.size) return;
      this.seconds = seconds;
      back();
    });
    this.find(".ea-start").focus();
  }

  async save() {
    const transcript = {
      language: this.language,
      cues: this.captions.cues,
      translation: this.captions.translated,
      target: this.target,
      translated: this.find("[name=which]").value && this.target,
    };
    await saveTranscript(this.fileName(), this.find("[name=format]").value, transcript).catch(
      (error) => problem(this.root, error.message),
    );
  }

  saveSound() {
    const { file } = this.heard;
    const [, ending] = [["ogg", "ogg"], ["mp4", "m4a"]].find(([type]) => file.type.includes(type)) ?? ["", "webm"];
    download(`${this.fileName()}.${ending}`, file);
  }

  fileName() {
    return `captions-${new Date().toISOString().slice(0, 16).replace(/[:T]/g, "-")}`;
  }

  beside() {
    const wide = this.root.dataset.layout !== "beside";
    this.root.dataset.layout = wide ? "beside" : "below";
    this.find(".ea-beside").setAttribute("aria-pressed", wide);
    this.captions.scroll();
  }

  big(wanted) {
    if (this.root.classList.contains("ea-big") === wanted) return;
    this.root.classList.toggle("ea-big", wanted);
    this.find(".ea-big-off").hidden = !wanted;
    this.projector.show(wanted);
    if (wanted) document.documentElement.requestFullscreen?.().catch(() => {});
    else if (document.fullscreenElement) document.exitFullscreen();
    this.find(wanted ? ".ea-big-off" : ".ea-big-on").focus();
    this.captions.toEnd();
  }
}

export const start = (element) => new Live(element.querySelector(".ea-live"));
