// The picture of a recording that has one, with its subtitles over it.

const SETTLED_MS = 300;

export class Picture {
  /** @param {HTMLVideoElement} video The player's element.
   * @param {() => {start: number, end: number, text: string}[]} cues What to show. */
  constructor(video, cues) {
    this.video = video;
    this.cues = cues;
    this.track = video.addTextTrack("subtitles", "EdgeApp");
    this.track.mode = "showing";
    const show = () => {
      video.hidden = !video.videoWidth;
      this.changed(); // a picture that is known late has its subtitles, too
    };
    for (const name of ["loadedmetadata", "emptied", "resize"]) video.addEventListener(name, show);
    video.addEventListener("click", () => (video.paused ? video.play().catch(() => {}) : video.pause()));
  }

  /** The transcript has changed: show it soon. */
  changed() {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.update(), SETTLED_MS);
  }

  update() {
    for (const cue of [...(this.track.cues ?? [])]) this.track.removeCue(cue);
    if (this.video.hidden) return;
    for (const { start, end, text } of this.cues()) {
      if (text.trim() && end > start) this.track.addCue(new VTTCue(start, end, text.trim()));
    }
  }
}
