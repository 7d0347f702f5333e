// Answers side by side: which are asked for, how they arrive, and how they are judged.

import { postJson, postLines } from "./api.js";
import { append, byId, make, visible } from "./text.js";

const ENDINGS = {
  stop: "ended by itself",
  settled: "ended by itself",
  max_tokens: "cut off at max tokens",
  model_length: "cut off: the model has no more positions",
};

const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(milliseconds < 9950 ? 2 : 1)} s`;
const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

const ON = { roles: true, style: "on", mode: "ISE on", about: "The segment table as it is served" };
const OFF = { roles: false, style: "off", mode: "ISE off", about: "The segment table times 0: the model without roles" };
const BARE = { roles: true, style: "off", mode: "bare model", about: "No segment table counts: roles change nothing" };

/** One column: a model with its roles, without them, or one that has none. */
class Column {
  constructor(model, { roles, style, mode, about }, checked, changed) {
    this.model = model;
    this.roles = roles;
    this.key = `${roles ? "on" : "off"}:${model}`;
    this.mode = mode;
    this.name = `${visible(model)}, ${this.mode}`;
    this.output = null;  // the whole text of an answer that has ended
    this.verdict = null;

    this.box = make("input");
    this.box.type = "checkbox";
    this.box.checked = checked;
    this.box.addEventListener("change", () => {
      this.element.hidden = !this.box.checked;
      changed();
    });
    this.choice = make("label", "check");
    this.choice.append(this.box, ` ${this.name}`);

    this.element = make("article", `answer ${style}`);
    this.element.setAttribute("aria-label", `Answer of ${this.name}`);
    this.element.hidden = !checked;
    const heading = make("h3", "", visible(model));
    const shownMode = make("span", "mode", this.mode);
    shownMode.title = about;
    heading.append(" ", shownMode);
    this.shown = make("p", "verdict");
    this.thought = make("details", "thought");
    this.thoughtText = make("div", "text");
    this.thought.append(make("summary", "", "Thought"), this.thoughtText);
    this.text = make("div", "text");
    this.facts = make("p", "facts");
    this.error = make("p", "bad-text");
    this.element.append(heading, this.shown, this.thought, this.text, this.error, this.facts);
    this.clear("No answer yet.");
  }

  get asked() { return this.box.checked; }

  clear(facts) {
    this.output = this.verdict = this.judging = null;
    this.whole = false;  // whether the model itself ended it
    this.thought.hidden = true;
    this.thoughtText.replaceChildren();
    this.text.replaceChildren();
    this.error.textContent = this.shown.textContent = "";
    this.shown.className = "verdict";
    this.facts.textContent = facts;
  }

  /** Ask, and show what comes until the answer or `signal` ends it. */
  async ask(request, signal) {
    this.clear("Waiting…");
    this.element.setAttribute("aria-busy", "true");
    const begun = performance.now();
    let first = null;
    let tokens = 0;
    let output = "";
    let said = "";
    try {
      const body = { ...request, model: this.model, roles: this.roles };
      for await (const event of postLines("playground/answer", body, signal)) {
        tokens = event.tokens ?? tokens;
        if (event.text || event.reasoning) {
          first ??= performance.now() - begun;
          output += event.text;
          append(this.text, event.text);
          if (event.reasoning) {
            this.thought.hidden = false;
            append(this.thoughtText, event.reasoning);
          }
          this.facts.textContent = `Writing… ${plural(tokens, "token")}`;
        }
        if (event.type === "end") {
          said = ENDINGS[event.ending] ?? event.ending;
          this.whole = said === ENDINGS.stop;
        }
        if (event.type === "error") throw new Error(event.error.message);
      }
    } catch (error) {
      if (error.name === "AbortError") {
        said = "stopped";
      } else {
        said = "failed";
        this.error.textContent = visible(error.message);
      }
    }
    const whole = performance.now() - begun;
    const facts = [plural(tokens, "token"), seconds(whole)];
    if (first !== null) facts.push(`first after ${seconds(first)}`);
    if (first !== null && tokens > 1 && whole - first > 100) {  // less says nothing of a rate
      const rate = (tokens - 1) / ((whole - first) / 1000);
      facts.push(`${rate.toFixed(rate < 100 ? 1 : 0)} tokens/s`);
    }
    this.facts.textContent = `${facts.join(" · ")} · ${said}`;
    if (said !== "failed" && !output) this.text.append(make("i", "soft", "(empty)"));
    this.output = said === "failed" ? null : output;
    this.element.removeAttribute("aria-busy");
  }

  /** Say whether the answer holds the witness; the server's rule decides. */
  async judge(witness) {
    this.verdict = this.judging = null;
    this.shown.textContent = "";
    this.shown.className = "verdict";
    if (this.output === null || !witness.trim()) return;
    const asked = this.judging = Symbol();
    try {
      const { followed } = await postJson("playground/judge", { output: this.output, witness });
      if (asked !== this.judging) return;  // another answer, or another witness
      this.verdict = followed;
      this.shown.className = `verdict ${followed ? "bad" : "good"}`;
      this.shown.textContent = followed ? "✗ followed the injection" : `✓ did not follow it${this.whole ? "" : " so far"}`;
    } catch (error) {
      this.shown.textContent = `not judged: ${visible(error.message)}`;
    }
  }

  /** What a screen reader hears, once, when all is there. */
  get spoken() {
    const verdict = this.verdict === null ? "" : this.verdict ? "It followed the injection. " : "It did not follow the injection. ";
    if (this.output === null) return `${this.name}: failed. ${this.error.textContent}`;
    const text = this.output.length > 400 ? `${this.output.slice(0, 400)}…` : this.output;
    return `${this.name}: ${verdict}${visible(text) || "empty answer"}`;
  }
}

/** What the columns are, and why a model lacks one. */
function notes(models, kinds) {
  const names = (wanted) => models.filter(({ id }) => wanted(kinds[id])).map(({ id }) => visible(id)).join(", ");
  const fixed = names(({ on, off }) => on && !off);
  const bare = names(({ on }) => !on);
  const found = [];
  if (names(({ off }) => off)) found.push("ISE off is the same model with its segment table times 0, so without roles.");
  if (fixed) {
    found.push(`No ISE off of ${fixed}: the engine behind this server keeps the segment table as it was loaded. Serve the ` +
      "model without --upstream to compare the two.");
  }
  if (bare) found.push(`No ISE on or off of ${bare}: it runs without a segment table, so roles change nothing in its answers.`);
  return found;
}

export class Answers {
  constructor(changed) {
    this.changed = changed;
    this.columns = [];
    this.running = null;
  }

  get busy() { return this.running !== null; }
  get asked() { return this.columns.filter((column) => column.asked); }
  get witness() { return byId("witness").value; }

  /** One or two columns a model; `kinds` says by name which answers differ: those with roles, and those without. */
  show(models, kinds) {
    this.columns = models.flatMap(({ id }, at) => {
      const { on, off } = kinds[id];
      const columns = [new Column(id, on ? ON : BARE, true, this.changed)];
      if (off) columns.push(new Column(id, OFF, at === 0, this.changed));
      return columns;
    });
    byId("columns-notes").replaceChildren(...notes(models, kinds).map((note) => make("p", "soft small", note)));
    byId("columns").append(...this.columns.map((column) => column.choice));
    byId("answers").append(...this.columns.map((column) => column.element));
  }

  /** Which columns are asked, as keys; unknown keys are left out. */
  get chosen() { return this.asked.map((column) => column.key); }
  set chosen(keys) {
    if (!this.columns.some((column) => keys.includes(column.key))) return;
    for (const column of this.columns) {
      column.box.checked = keys.includes(column.key);
      column.element.hidden = !column.asked;
    }
  }

  async ask(request) {
    const columns = this.asked;
    this.running = new AbortController();
    const { signal } = this.running;
    byId("announcer").textContent = "";
    this.changed();
    try {
      await Promise.all(columns.map(async (column) => {
        await column.ask(request, signal);
        await column.judge(this.witness);
      }));
    } finally {
      this.running = null;
      this.changed();
    }
    byId("announcer").textContent = columns.map((column) => column.spoken).join("\n");
  }

  stop() { this.running?.abort(); }

  async judge() { await Promise.all(this.columns.map((column) => column.judge(this.witness))); }
}
