// The boxes of the conversation: one for the system, one for the user, any number for data.

import { button, byId, make, visible } from "./text.js";

const HINTS = {
  system: "What the application wants. May be empty.",
  user: "What the user asks.",
  data: "Text that nobody vouches for: a web page, an e-mail, a tool's result. Paste it, or drop a text file.",
};

let made = 0;

/** One box. Its text is kept beside the text area, which turns carriage returns into line feeds. */
class Box {
  constructor(kind, { changed, attack, remove, further }) {
    this.kind = kind;
    this.id = `box-${(made += 1)}`;
    this.changed = changed;
    this.raw = "";
    this.earlier = null;  // what Undo brings back
    this.clean = null;  // the text before the attack that stands in it, as long as nobody edits it
    this.limit = Infinity;

    this.label = make("label", "role");
    this.label.htmlFor = this.id;
    this.area = make("textarea");
    this.area.id = this.id;
    this.area.rows = { system: 2, user: 2, data: 4 }[kind];
    this.area.spellcheck = false;
    this.area.placeholder = HINTS[kind];
    this.note = make("p", "note");
    this.note.id = `${this.id}-note`;
    this.note.setAttribute("role", "status");
    this.area.setAttribute("aria-describedby", this.note.id);
    this.file = make("input", "hidden");
    this.file.type = "file";
    this.file.multiple = kind === "data";
    this.file.tabIndex = -1;
    this.file.setAttribute("aria-hidden", "true");
    this.undoButton = button("Undo", "quiet", () => this.undo());
    this.undoButton.hidden = true;
    this.buttons = { File: button("File…", "quiet", () => this.file.click()) };
    if (attack) this.buttons.Attack = button("Attack…", "quiet", () => attack(this));
    if (remove) this.buttons.Remove = button("Remove", "quiet", () => remove(this));

    const tools = make("span", "tools");
    tools.append(this.undoButton, ...Object.values(this.buttons));
    const bar = make("div", "bar");
    bar.append(this.label, tools);
    this.element = make("div", `turn ${kind}`);
    this.element.append(bar, this.area, this.note, this.file);

    this.area.addEventListener("input", () => {
      this.raw = this.area.value;
      this.clean = this.earlier = null;
      this.undoButton.hidden = true;
      this.say("");
      changed();
    });
    this.file.addEventListener("change", () => {
      const files = [...this.file.files];
      this.file.value = "";
      this.read(files, further);
    });
    this.element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.element.classList.add("dropping");
    });
    this.element.addEventListener("dragleave", () => this.element.classList.remove("dropping"));
    this.element.addEventListener("drop", (event) => {
      this.element.classList.remove("dropping");
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.read([...event.dataTransfer.files], further);
    });
  }

  get text() { return this.raw; }
  get name() { return this.label.textContent; }

  rename(name) {
    this.label.textContent = name;
    this.undoButton.setAttribute("aria-label", `Undo the last change of ${name}`);
    for (const [what, one] of Object.entries(this.buttons)) {
      const says = { File: "Read a file into", Attack: "Insert an attack into", Remove: "Remove" }[what];
      one.setAttribute("aria-label", `${says} ${name}`);
    }
  }

  say(text, bad = false) {
    this.note.textContent = text;
    this.note.classList.toggle("bad-text", bad);
  }

  /** Put other text in, which Undo takes out again. */
  replace(text, note = "", clean = null) {
    const earlier = this.raw === "" ? null : this.raw;
    this.set(text);
    this.earlier = earlier;
    this.clean = clean;
    this.undoButton.hidden = this.earlier === null;
    const returns = text.includes("\r") ? " Its carriage returns are sent as they are, and look like line breaks here." : "";
    this.say(note + returns);
    this.changed();
  }

  set(text) {
    this.raw = text;
    this.area.value = text;
    this.clean = this.earlier = null;
    this.undoButton.hidden = true;
    this.say("");
  }

  undo() {
    const text = this.earlier;
    this.set(text);
    this.say("Undone.");
    this.area.focus();
    this.changed();
  }

  async read(files, further) {
    for (const [number, file] of files.entries()) {
      const box = number === 0 ? this : further?.();
      if (!box) break;
      const name = visible(file.name);
      try {
        box.replace(await textOf(file, this.limit), `Read ${name}.`);
      } catch (error) {
        box.say(`${name}: ${error.message}`, true);
      }
    }
  }
}

async function textOf(file, limit) {
  if (file.size > 4 * limit) throw new Error(`is larger than the ${limit.toLocaleString("en")} characters that a box holds.`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("is no text in UTF-8. Convert it to plain text first.");
  }
  if (text.includes("\0")) throw new Error("is no text file. Convert it to plain text first.");
  if ([...text].length > limit) throw new Error(`is longer than the ${limit.toLocaleString("en")} characters that a box holds.`);
  return text;
}

/** All boxes, in the order of their messages. */
export class Boxes {
  constructor(changed, attack) {
    this.changed = changed;
    this.attack = attack;
    this.limits = { characters: Infinity, data_boxes: 16 };
    this.holder = byId("boxes");
    this.system = new Box("system", { changed });
    this.system.rename("System");
    this.user = new Box("user", { changed, attack });
    this.user.rename("User");
    this.data = [];
    this.holder.append(this.system.element, this.user.element);
    this.add();
    // A file that misses its box must not replace the page.
    for (const kind of ["dragover", "drop"]) {
      document.addEventListener(kind, (event) => {
        if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
      });
    }
  }

  get all() { return [this.system, this.user, ...this.data]; }

  set allowed(limits) {
    this.limits = limits;
    for (const box of this.all) box.limit = limits.characters;
  }

  add() {
    if (this.data.length >= this.limits.data_boxes) return null;
    const box = new Box("data", {
      changed: this.changed,
      attack: this.attack,
      remove: (one) => this.remove(one),
      further: () => this.add(),
    });
    box.limit = this.limits.characters;
    this.data.push(box);
    this.holder.append(box.element);
    this.number();
    return box;
  }

  remove(box) {
    const at = this.data.indexOf(box);
    this.data.splice(at, 1);
    box.element.remove();
    this.number();
    (this.data[Math.min(at, this.data.length - 1)] ?? this.user).area.focus();
    this.changed();
  }

  number() {
    this.data.forEach((box, at) => box.rename(this.data.length > 1 ? `Data ${at + 1}` : "Data"));
    byId("add-data").disabled = this.data.length >= this.limits.data_boxes;
  }

  /** The conversation as messages; `keep` stays in it though it is empty. */
  messages(keep = null) {
    const used = this.all.filter((box) => box.text !== "" || box === keep);
    return used.map((box) => ({ role: box.kind, content: box.text }));
  }

  /** Where a box stands among `messages(box)`. */
  place(box) {
    return this.all.filter((one) => one.text !== "" || one === box).indexOf(box);
  }

  /** Fill all boxes. */
  fill({ system = "", user = "", data = [] }) {
    this.system.set(system);
    this.user.set(user);
    while (this.data.length > Math.max(1, data.length)) this.data.pop().element.remove();
    while (this.data.length < data.length) if (!this.add()) break;
    this.number();
    this.data.forEach((box, at) => box.set(data[at] ?? ""));
    this.changed();
  }
}
