// AudioWorklet: the sound of each input, mixed to mono, as blocks of 16-bit samples. Those of several
// inputs are interleaved.

const BLOCK_S = 0.04;

class Recorder extends AudioWorkletProcessor {
  constructor({ numberOfInputs }) {
    super();
    this.block = new Int16Array(Math.round(BLOCK_S * sampleRate) * numberOfInputs);
    this.filled = 0;
    this.peak = 0;
    this.port.onmessage = () => {
      this.flush();
      this.port.postMessage({ done: true });
    };
  }

  process(inputs) {
    // An input without channels is silent.
    const length = Math.max(...inputs.map((input) => input[0]?.length ?? 0));
    for (let i = 0; i < length; i++) {
      for (const input of inputs) {
        let sum = 0;
        for (const channel of input) sum += channel[i];
        const sample = Math.max(-1, Math.min(1, sum / Math.max(1, input.length)));
        this.peak = Math.max(this.peak, Math.abs(sample));
        this.block[this.filled++] = Math.round(sample * 32767);
      }
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
