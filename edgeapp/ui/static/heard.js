// The sound of a live session, in this browser: its last minutes, so that a line can be heard again,
// and all of it, compressed, if the user wishes to keep it.

import { KeptSound } from "/edgeapp/static/kept-sound.js";

const LONGEST_S = 300;
const LAST_S = 12; // of a long line, its end is played
const AROUND_S = 0.4; // before and after a line
const CHUNK_MS = 5000;
const BITS_PER_S = 48_000;

export class Heard {
  /** @param {number} rate Samples a second, of each channel. @param {number} channels
   * @param {number} began When, in seconds of the captions. */
  constructor(rate, channels, began) {
    this.rate = rate;
    this.channels = channels;
    this.began = began;
    this.recent = new KeptSound(rate * channels, 0, LONGEST_S);
    /** @type {Blob[]} */
    this.chunks = [];
    this.recorder = null;
  }

  /** @param {ArrayBuffer} buffer 16-bit samples. */
  add(buffer) {
    this.recent.add(buffer);
  }

  /** Keep the whole sound of a stream, too. @param {MediaStream} stream */
  keep(stream) {
    this.recorder = new MediaRecorder(stream, { audioBitsPerSecond: BITS_PER_S });
    this.recorder.ondataavailable = ({ data }) => data.size && this.chunks.push(data);
    this.recorder.start(CHUNK_MS);
  }

  /** @param {boolean} paused */
  pause(paused) {
    if (this.recorder?.state === (paused ? "recording" : "paused")) {
      if (paused) this.recorder.pause();
      else this.recorder.resume();
    }
  }

  /** Resolves when all sound is in `file`. */
  async end() {
    if (!this.recorder || this.recorder.state === "inactive") return;
    await new Promise((stopped) => {
      this.recorder.onstop = stopped;
      this.recorder.stop();
    });
  }

  /** The kept sound; null if there is none. @returns {Blob | null} */
  get file() {
    return this.chunks.length ? new Blob(this.chunks, { type: this.recorder.mimeType }) : null;
  }

  /** Play what was said between two times of the captions. False: it is not there any more.
   * @param {number} start @param {number} end */
  play(start, end) {
    const { rate, channels } = this;
    const first = Math.max(start - AROUND_S, end - LAST_S) - this.began;
    const from = Math.max(0, Math.round(first * rate)) * channels;
    const most = Math.round((end + AROUND_S - this.began) * rate) * channels - from;
    if (from < this.recent.start || from >= this.recent.end || most <= 0) return false;
    const samples = new Int16Array(this.recent.read(from, most).buffer);
    this.playing?.stop();
    this.context ??= new AudioContext();
    const sound = this.context.createBuffer(channels, samples.length / channels, rate);
    for (let channel = 0; channel < channels; channel++) {
      const own = samples.filter((_, i) => i % channels === channel);
      sound.copyToChannel(Float32Array.from(own, (sample) => sample / 32768), channel);
    }
    this.playing = this.context.createBufferSource();
    this.playing.buffer = sound;
    this.playing.connect(this.context.destination);
    this.playing.start();
    return true;
  }
}
