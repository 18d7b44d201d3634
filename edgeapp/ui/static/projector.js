// Big text, for a projector or a large room: its size, what is shown, and controls that fade.

const STORE = "ea-projector"; // in localStorage
const SIZES = [0.5, 0.7, 1, 1.3, 1.7, 2.2];
const REST_MS = 4000;

export class Projector {
  /** @param {HTMLElement} root The tab's element. @param {() => void} changed Called when less or
   *   more text fits. */
  constructor(root, changed) {
    this.root = root;
    this.changed = changed;
    this.find = (selector) => root.querySelector(selector);
    /** @type {{size: number, only: boolean, two: boolean, contrast: boolean}} */
    this.choice = { size: 2, only: false, two: false, contrast: false };
    Object.assign(this.choice, JSON.parse(localStorage.getItem(STORE) ?? "{}"));
    this.find(".ea-smaller").onclick = () => this.set({ size: Math.max(0, this.choice.size - 1) });
    this.find(".ea-larger").onclick = () => this.set({ size: Math.min(SIZES.length - 1, this.choice.size + 1) });
    for (const name of ["only", "two", "contrast"]) {
      this.find(`.ea-big-${name}`).onclick = () => this.set({ [name]: !this.choice[name] });
    }
    for (const name of ["pointermove", "pointerdown", "keydown", "focusin"]) {
      addEventListener(name, () => this.awake(), { passive: true });
    }
    this.set({});
  }

  /** @param {Partial<{size: number, only: boolean, two: boolean, contrast: boolean}>} choice */
  set(choice) {
    Object.assign(this.choice, choice);
    localStorage.setItem(STORE, JSON.stringify(this.choice));
    this.root.style.setProperty("--big", String(SIZES[this.choice.size]));
    this.find(".ea-smaller").disabled = this.choice.size === 0;
    this.find(".ea-larger").disabled = this.choice.size === SIZES.length - 1;
    for (const name of ["only", "two", "contrast"]) {
      this.root.dataset[name] = this.choice[name] ? "yes" : "no";
      this.find(`.ea-big-${name}`).setAttribute("aria-pressed", String(this.choice[name]));
    }
    this.changed();
  }

  /** Show the controls; they fade when nothing is touched for a while. */
  awake() {
    if (!this.root.classList.contains("ea-big")) return;
    this.root.classList.remove("ea-rest");
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.root.classList.add("ea-rest"), REST_MS);
  }

  /** Big text was switched on or off. @param {boolean} on */
  show(on) {
    clearTimeout(this.resting);
    this.root.classList.remove("ea-rest");
    // What is not translated can show nothing but what was said.
    this.find(".ea-big-only").hidden = !this.root.querySelector(".ea-meant:not(:empty)") && !this.find("[name=target]").value;
    if (on) this.awake();
  }
}
