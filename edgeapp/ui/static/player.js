// The player of a recording: its spectrogram, the progress of the work, and playback.

import { clock, make } from "/edgeapp/static/parts.js";
import { t } from "/edgeapp/static/texts.js";

const STEP_S = 5;
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];

/** root: the tab's element. Set `moved` to a function that gets the time (s) during playback. */
export class Player {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    this.audio = find("video, audio");
    this.strip = find(".ea-strip");
    this.canvas = this.strip.querySelector("canvas");
    this.button = find(".ea-play");
    this.at = find(".ea-at");
    this.of = find(".ea-of");
    this.seconds = 0;
    this.sound = null;
    this.moved = () => {};
    this.until = Infinity; // where playing stops by itself
    this.speed = make("select", { "aria-label": t("Speed") });
    this.speed.append(...SPEEDS.map((speed) => new Option(`${speed}×`, speed, speed === 1, speed === 1)));
    this.of.after(make("label", { class: "ea-pick ea-speed" }, this.speed));
    this.listen();
  }

  listen() {
    const { audio, strip } = this;
    this.button.onclick = () => {
      this.until = Infinity;
      if (audio.paused) audio.play().catch(() => {});
      else audio.pause();
    };
    this.speed.onchange = () => {
      audio.playbackRate = audio.defaultPlaybackRate = Number(this.speed.value);
    };
    audio.onloadedmetadata = () => {
      if (!this.seconds && Number.isFinite(audio.duration)) this.setLength(audio.duration);
    };
    audio.onplay = audio.onpause = () => {
      this.showState();
      if (!audio.paused) this.follow();
    };
    audio.ontimeupdate = audio.onseeked = () => {
      if (audio.currentTime >= this.until) audio.pause();
      this.show();
    };
    audio.oncanplay = () => (this.button.disabled = false);
    audio.onerror = () => (this.button.disabled = true);
    strip.onpointerdown = (event) => {
      const box = strip.getBoundingClientRect();
      this.seek(((event.clientX - box.left) / box.width) * this.seconds);
    };
    strip.onkeydown = (event) => {
      const steps = { ArrowRight: STEP_S, ArrowUp: STEP_S, ArrowLeft: -STEP_S, ArrowDown: -STEP_S };
      if (event.key in steps) this.seek(audio.currentTime + steps[event.key]);
      else if (event.key === "Home") this.seek(0);
      else if (event.key === "End") this.seek(this.seconds);
      else if (event.key === " ") this.button.click();
      else return;
      event.preventDefault();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    addEventListener("ea-theme", () => this.paint());
  }

  /** Whether sound is heard. */
  get playing() {
    return !this.audio.paused;
  }

  /** Open a local file; it is played from the user's machine. */
  open(file) {
    this.close();
    this.url = URL.createObjectURL(file);
    this.audio.src = this.url;
  }

  /** Open a recording of the history. */
  openUrl(url) {
    this.close();
    this.audio.src = url;
  }

  /** Show whether it is playing. */
  showState() {
    this.button.classList.toggle("ea-playing", this.playing);
    this.button.setAttribute("aria-label", this.playing ? t("Pause") : t("Play"));
  }

  close() {
    this.audio.pause();
    this.audio.removeAttribute("src");
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = this.sound = null;
    this.seconds = 0;
    this.of.textContent = "";
    this.until = Infinity;
    this.button.disabled = true;
    this.showState();
    this.canvas.getContext("2d").clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.show();
  }

  seek(time) {
    this.audio.currentTime = Math.max(0, Math.min(time, this.seconds));
    this.show();
  }

  /** Play on from a time (s). */
  play(time) {
    this.until = Infinity;
    this.seek(time);
    this.audio.play().catch(() => {});
  }

  /** Play a passage (s). */
  playSpan(from, to) {
    this.play(from);
    this.until = to;
  }

  /** Draw the spectrogram that the server computed. */
  draw(sound) {
    this.sound = sound;
    this.paint();
    this.setLength(sound.seconds);
  }

  /** Set the length of the recording, in seconds. */
  setLength(seconds) {
    this.seconds = seconds;
    this.strip.setAttribute("aria-valuemax", Math.round(this.seconds));
    this.of.textContent = ` / ${clock(this.seconds)}`;
    this.show();
  }

  /** Show how much is transcribed, in seconds. */
  done(seconds) {
    const share = this.seconds ? Math.min(1, seconds / this.seconds) : 0;
    this.strip.style.setProperty("--done", share);
  }

  paint() {
    if (!this.sound) return;
    const { columns, bands, pixels } = this.sound;
    const loud = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
    const [red, green, blue] = colour(this.strip);
    this.canvas.width = columns;
    this.canvas.height = bands;
    const pen = this.canvas.getContext("2d");
    const image = pen.createImageData(columns, bands);
    for (let x = 0; x < columns; x++) {
      for (let y = 0; y < bands; y++) {
        const at = 4 * ((bands - 1 - y) * columns + x);
        image.data.set([red, green, blue, loud[x * bands + y]], at);
      }
    }
    pen.putImageData(image, 0, 0);
  }

  follow() {
    this.show();
    if (this.audio.currentTime >= this.until) this.audio.pause();
    if (!this.audio.paused) requestAnimationFrame(() => this.follow());
  }

  show() {
    const time = this.audio.currentTime || 0;
    this.at.textContent = clock(time);
    this.strip.style.setProperty("--at", this.seconds ? Math.min(1, time / this.seconds) : 0);
    this.strip.setAttribute("aria-valuenow", Math.round(time));
    this.strip.setAttribute("aria-valuetext", clock(time));
    this.moved(this.audio.paused && !time ? -1 : time);
  }
}

function colour(element) {
  return getComputedStyle(element).color.match(/[\d.]+/g).slice(0, 3).map(Number);
}
