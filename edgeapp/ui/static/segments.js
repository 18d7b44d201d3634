// The transcript of a recording: one row a segment, with its time, text and translation.

import { clock, make } from "/edgeapp/static/parts.js";

/** place: the list element. play: called with the start (s) of a segment to play it. */
export class Segments {
  constructor(place, play) {
    this.place = place;
    this.play = play;
    this.clear(false);
  }

  get count() {
    return this.rows.length;
  }

  /** Remove all rows. translated: whether there will be translations. */
  clear(translated) {
    this.rows = [];
    this.cues = [];
    this.live = null;
    this.place.replaceChildren();
    this.place.classList.toggle("ea-two", translated);
  }

  /** Append words as they are decoded, which may still change. */
  append(text, translation = false) {
    if (translation) {
      const row = this.rows[this.cues.at(-1)?.next ?? 0] ?? this.rows.at(-1);
      if (row) row.running.textContent += text;
      return;
    }
    if (!this.live) {
      this.live = make("li", { class: "ea-live-row", "aria-hidden": "true" });
      this.live.append(make("p", { class: "ea-tail" }));
      this.place.append(this.live);
    }
    this.live.firstChild.textContent += text;
  }

  /** Remove the decoded words that are not part of a segment yet. */
  retract() {
    this.live?.remove();
    this.live = null;
  }

  /** Add a final segment. */
  add(segment) {
    this.retract();
    const text = segment.text.trim();
    if (!text) return;
    const time = make("button", { type: "button", class: "ea-chip ea-time" }, clock(segment.start));
    time.setAttribute("aria-label", `Play from ${clock(segment.start)}`);
    time.onclick = () => this.play(segment.start);
    const said = editable("ea-said", text, `Text at ${clock(segment.start)}`);
    const meant = make("div", { class: "ea-meant" });
    const running = make("span", { class: "ea-tail", "aria-hidden": "true" });
    meant.append(running);
    const row = make("li", {}, time, said, meant);
    this.rows.push({ row, said, meant, running, segment, before: text });
    this.place.append(row);
  }

  /** Add a translated cue, beside the segment in which it begins. */
  translate(cue) {
    const found = this.rows.findLastIndex(({ segment }) => segment.start <= cue.start + 0.01);
    const row = this.rows[Math.max(0, found)];
    const next = this.rows.findIndex(({ segment }) => segment.start >= cue.end - 0.01);
    const text = editable("ea-cue", cue.text, `Translation at ${clock(cue.start)}`);
    this.rows.forEach(({ running }) => (running.textContent = ""));
    row?.meant.insertBefore(text, row.running);
    this.cues.push({ ...cue, text, next: next < 0 ? this.rows.length : next });
  }

  /** Highlight the segment that is played at a time (s). */
  mark(time) {
    for (const { row, segment } of this.rows) {
      row.classList.toggle("ea-now", segment.start <= time && time < segment.end);
    }
  }

  /** The transcript as edited. A segment that was not edited keeps all its fields. */
  texts() {
    const cues = this.rows.map(({ segment, said, before }) => {
      const text = said.innerText.trim();
      const { start, end } = segment;
      return text === before ? segment : { ...segment, start, end, text: text && ` ${text}` };
    });
    const translation = this.cues.map(({ start, end, text }) => ({
      start,
      end,
      text: text.innerText.trim(),
    }));
    return { cues, translation };
  }
}

function editable(name, text, label) {
  const place = make("div", { class: name, role: "textbox", "aria-label": label }, text);
  place.contentEditable = "true";
  place.setAttribute("aria-multiline", "false");
  place.spellcheck = true;
  place.onpaste = (event) => {
    event.preventDefault();
    const pasted = event.clipboardData.getData("text/plain").replace(/\s+/g, " ");
    document.execCommand("insertText", false, pasted);
  };
  place.onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    place.blur();
  };
  return place;
}
