// AudioWorklet: the microphone's audio, mixed to mono, as blocks of 16-bit samples.

const BLOCK_S = 0.04;

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Int16Array(Math.round(BLOCK_S * sampleRate));
    this.filled = 0;
    this.peak = 0;
    this.port.onmessage = () => {
      this.flush();
      this.port.postMessage({ done: true });
    };
  }

  process([input]) {
    if (!input.length) return true;
    for (let i = 0; i < input[0].length; i++) {
      let sum = 0;
      for (const channel of input) sum += channel[i];
      const sample = Math.max(-1, Math.min(1, sum / input.length));
      this.peak = Math.max(this.peak, Math.abs(sample));
      this.block[this.filled++] = Math.round(sample * 32767);
      if (this.filled === this.block.length) this.flush();
    }
    return true;
  }

  flush() {
    if (!this.filled) return;
    const audio = this.block.slice(0, this.filled).buffer;
    this.port.postMessage({ audio, peak: this.peak }, [audio]);
    this.filled = this.peak = 0;
  }
}

registerProcessor("ea-recorder", Recorder);
