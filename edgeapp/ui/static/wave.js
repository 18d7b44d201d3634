// The level of the microphone, as bars that move to the left.

const BARS = 35;

/** Draws on a canvas, in the colour of its text. */
export class Wave {
  constructor(canvas) {
    this.canvas = canvas;
    this.peaks = new Array(BARS).fill(0);
    this.clear();
  }

  /** Add a block's peak level, 0 to 1. */
  add(peak) {
    this.peaks.push(peak);
    this.peaks.shift();
    this.waiting ??= requestAnimationFrame(() => this.draw());
  }

  /** Show silence. */
  clear() {
    this.peaks.fill(0);
    this.draw();
  }

  draw() {
    this.waiting = null;
    const { width, height } = this.canvas;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = getComputedStyle(this.canvas).color;
    const step = width / BARS;
    this.peaks.forEach((peak, i) => {
      // Logarithmic, as hearing is: 50 dB from top to bottom.
      const loud = Math.max(0, 1 + (20 * Math.log10(peak + 1e-5)) / 50);
      const tall = Math.max(4, loud * height);
      pen.beginPath();
      pen.roundRect(i * step + 1, (height - tall) / 2, step - 4, tall, step / 2);
      pen.fill();
    });
  }
}
