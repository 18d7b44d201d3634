// Sound that was recorded: what the server has not confirmed yet, so that a lost connection loses
// none of it, or the last minutes, to be heard again. Positions are samples since the recording began.

const LONGEST_S = 600;

export class KeptSound {
  /** rate: samples a second. start: the position of the first sample. longest: in seconds; what is
   * older is dropped. */
  constructor(rate, start = 0, longest = LONGEST_S) {
    this.rate = rate;
    this.longest = longest;
    this.start = this.end = start;
    this.blocks = []; // of Int16Array
    this.lost = 0; // samples that were dropped because too much was kept
  }

  /** Append a block of 16-bit samples. */
  add(buffer) {
    const block = new Int16Array(buffer);
    this.blocks.push(block);
    this.end += block.length;
    while (this.end - this.start > this.longest * this.rate) {
      this.lost += this.blocks[0].length;
      this.dropFirst();
    }
  }

  /** Forget whole blocks before a position: the server has them. */
  confirm(position) {
    while (this.blocks.length && this.start + this.blocks[0].length <= position) this.dropFirst();
  }

  /** The kept sound from a position on, at most `most` samples: {buffer, from, to}. */
  read(position, most) {
    const from = Math.max(position, this.start);
    const to = Math.min(this.end, from + most);
    const samples = new Int16Array(to - from);
    let at = this.start;
    for (const block of this.blocks) {
      const [first, last] = [Math.max(at, from), Math.min(at + block.length, to)];
      if (first < last) samples.set(block.subarray(first - at, last - at), first - from);
      at += block.length;
      if (at >= to) break;
    }
    return { buffer: samples.buffer, from, to };
  }

  dropFirst() {
    this.start += this.blocks.shift().length;
  }
}
