// Elements of the page; text only ever comes in as textContent.
"use strict";

/** An element with properties. */
function make(tag, properties = {}, ...children) {
  const { role, dir, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  if (role) element.setAttribute("role", role);
  if (dir) element.dir = dir;
  element.append(...children);
  return element;
}

/** An element of a drawing, with attributes. */
function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const option = (value, text) => make("option", { value, textContent: text });
