// Elements, and untrusted text in them. All text enters the page through textContent, never as markup.

export const byId = (id) => document.getElementById(id);

export const make = (tag, className = "", text = undefined) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

export const button = (text, className, act) => {
  const element = make("button", className, text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
};

export const option = (select, value, text) => {
  const element = make("option", "", text);
  element.value = value;
  select.append(element);
};

// Characters that hide, or change the order of what one reads. Joiners that scripts and emoji need stay.
const HIDDEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

const escaped = (char) => {
  const code = char.codePointAt(0).toString(16);
  return code.length <= 4 ? "\\u" + code.padStart(4, "0") : "\\u{" + code + "}";
};

/** `text` with hidden characters written out, for names and messages. */
export const visible = (text) => String(text).replace(HIDDEN, escaped);

/** Append untrusted text, hidden characters in a frame of their own; a long run of one is counted. */
export const append = (element, text) => {
  let at = 0;
  const found = [...text.matchAll(HIDDEN)];
  for (let place = 0; place < found.length;) {
    const { 0: char, index } = found[place];
    let count = 1;
    while (found[place + count]?.[0] === char && found[place + count].index === index + count * char.length) count += 1;
    const shown = count < 8 ? Array(count).fill(escaped(char)) : [`${escaped(char)} ×${count}`];
    element.append(text.slice(at, index), ...shown.map((one) => make("span", "escape", one)));
    at = index + count * char.length;
    place += count;
  }
  element.append(text.slice(at));
};

/** Call `act` when nobody has asked for so many milliseconds; `cancel` forgets what was asked. */
export const debounced = (act, milliseconds) => {
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(act, milliseconds());
  };
  later.cancel = () => clearTimeout(waiting);
  return later;
};
