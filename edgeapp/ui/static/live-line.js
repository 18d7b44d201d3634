// Sends recorded sound to the server's live session, across lost connections: what the server has
// not confirmed is kept, and sent again to the same session or, after a restart, to a new one.

import { KeptSound } from "/edgeapp/static/kept-sound.js";
import { ask, hello, on, reconnect, send, sendAudio } from "/edgeapp/static/session.js";

// The server queues 60 s of sound. At most this much of it waits there.
const WINDOW_S = 30;
const BLOCK_S = 1;
const PING_MS = 1000;
const LATE_MS = 3000;
const DEAD_MS = 8000;
const STORED_S = 25;
const STORE = "ea-live";

export class LiveLine {
  /** request: the message that starts a session. heard: called with the snapshot of a session
   * that was resumed, or null when a new one has begun in its place. */
  constructor(request, heard) {
    this.request = request;
    this.heard = heard;
    /** Samples of all channels in a second, in which positions count. */
    this.samplesPerS = request.rate * (request.speakers?.length ?? 1);
    this.kept = new KeptSound(this.samplesPerS);
    this.origin = 0; // position at which the server's session began
    this.sent = this.taken = 0; // positions
    this.token = null; // of the connection that the session belongs to
    this.attached = false;
    this.finishing = this.finished = false;
    this.asked = this.answered = 0; // when the server was asked for an answer, and when it came
    this.off = [
      on("hello", () => this.connected()),
      on("lost", () => (this.attached = false)),
      on("live_status", (status) => this.progress(status)),
      on("live_resumed", (snapshot) => this.resumed(snapshot)),
      on("not_resumed", () => this.again()),
    ];
  }

  /** Start a session. False while there is no connection. */
  begin() {
    if (!send({ ...this.request, resumable: true })) return false;
    this.attach();
    return true;
  }

  /** Add recorded sound. */
  add(buffer) {
    this.kept.add(buffer);
    this.pump();
  }

  /** Send the rest, then let the session end. */
  finish() {
    this.finishing = true;
    this.pump();
  }

  close() {
    this.off.forEach((stop) => stop());
    this.attached = false;
  }

  /** Recorded so far, in seconds. */
  get seconds() {
    return this.kept.end / this.samplesPerS;
  }

  /** Whether the connection is lost or does not answer; it is replaced then. To be called often. */
  check() {
    if (!this.attached) return true;
    const now = performance.now();
    if (!this.asked && now - this.answered > PING_MS) {
      this.asked = now;
      const answered = () => ([this.asked, this.answered] = [0, performance.now()]);
      ask({ type: "ping" }).then(answered, answered);
    }
    const silent = this.asked ? now - this.asked : 0;
    if (silent > DEAD_MS) reconnect();
    return silent > LATE_MS;
  }

  /** Seconds of sound that the server has not confirmed. */
  get waiting() {
    return (this.kept.end - this.kept.start) / this.samplesPerS;
  }

  attach() {
    this.token = hello().session;
    this.attached = true;
    this.pump();
  }

  connected() {
    if (this.token && !this.attached) send({ type: "resume", session: this.token });
  }

  resumed(snapshot) {
    if (this.attached || !this.token) return;
    // Sound that is lost, as after a reload, is missing in the server's count.
    this.origin += Math.max(0, this.kept.start - this.origin - snapshot.received);
    this.progress(snapshot);
    this.sent = this.origin + snapshot.received;
    this.finished = false;
    this.heard(snapshot);
    this.attach();
  }

  /** The session is gone: a new one continues with what is kept. */
  again() {
    if (this.attached || !this.token) return;
    this.origin = this.sent = this.taken = this.kept.start;
    this.finished = false;
    this.heard(null);
    this.begin();
  }

  progress({ received, taken }) {
    this.taken = this.origin + taken;
    this.kept.confirm(this.origin + received);
    this.pump();
  }

  pump() {
    const { samplesPerS } = this;
    while (this.attached && this.sent < this.kept.end && this.sent - this.taken < WINDOW_S * samplesPerS) {
      const { buffer, to } = this.kept.read(this.sent, BLOCK_S * samplesPerS);
      sendAudio(buffer);
      this.sent = to;
    }
    if (this.finishing && !this.finished && this.attached && this.sent === this.kept.end) {
      this.finished = send({ type: "stop", kind: "live" });
    }
  }

  /** Before the page is reloaded: leave what is needed to go on. */
  store() {
    if (!this.token || this.finishing) return;
    const most = STORED_S * this.samplesPerS;
    const { buffer, from } = this.kept.read(this.kept.end - most, most);
    const { request, token, origin } = this;
    const left = { request, token, origin, from, sound: encode(buffer), at: Date.now() };
    try {
      sessionStorage.setItem(STORE, JSON.stringify(left));
    } catch {
      // No room: the sound is lost, the captions are not.
      sessionStorage.setItem(STORE, JSON.stringify({ ...left, sound: "" }));
    }
  }

  /** The line that a page before this one has left; null if there is none. */
  static restore(heard) {
    const left = JSON.parse(sessionStorage.getItem(STORE) ?? "null");
    sessionStorage.removeItem(STORE);
    if (!left) return null;
    const line = new LiveLine(left.request, heard);
    line.kept = new KeptSound(line.samplesPerS, left.from);
    if (left.sound) line.kept.add(decode(left.sound));
    Object.assign(line, { origin: left.origin, token: left.token });
    return line;
  }
}

function encode(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) {
    text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  }
  return btoa(text);
}

const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
