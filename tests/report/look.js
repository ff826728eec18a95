// Looks at a report: returns a list of text that leaves its box or lies on other text, of shapes
// outside of their frame, and of pictures without a table.
(() => {
  const faults = [];
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) faults.push("the page scrolls sideways");
  const name = it => `<${it.tagName.toLowerCase()} ${it.className?.baseVal ?? it.className}> ` +
    JSON.stringify((it.textContent || "").slice(0, 40));

  for (const it of document.querySelectorAll("body *")) {
    if (it.closest("svg") || it.parentElement.closest(".scroll")) continue;
    const style = getComputedStyle(it);
    const scrolls = ["auto", "scroll"].includes(style.overflowX);
    if (style.display !== "inline" && !scrolls && it.scrollWidth > it.clientWidth + 1)
      faults.push(`${name(it)} is wider than its box`);
  }

  const blocks = "p, li, dt, dd, h1, h2, h3, summary, figcaption, footer";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("svg, style, .scroll")) continue;
    if (!parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const home = parent.closest(".up, .across") ? parent.closest("figure") : parent.closest(blocks);
    const box = home.getBoundingClientRect();
    for (const rect of range.getClientRects()) {
      texts += 1;
      if (rect.left < Math.max(box.left, 0) - 1 || rect.right > Math.min(box.right, wide) + 1)
        faults.push(`${name(parent)} leaves its box`);
    }
  }
  if (texts < 40) faults.push(`only ${texts} texts`);

  for (const side of document.querySelectorAll(".up, .across")) {
    const boxes = [...side.children].map(it => it.getBoundingClientRect());
    for (const [at, a] of boxes.entries())
      for (const b of boxes.slice(at + 1))
        if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
          faults.push(`${name(side)} has words on each other`);
  }

  for (const shape of document.querySelectorAll("svg path, svg rect")) {
    const box = shape.getBBox(), frame = shape.ownerSVGElement.viewBox.baseVal;
    if (box.x < -1 || box.y < -1 ||
        box.x + box.width > frame.width + 1 || box.y + box.height > frame.height + 1)
      faults.push(`a shape leaves ${name(shape.closest("figure"))}`);
  }
  for (const picture of document.querySelectorAll("svg"))
    if (!picture.closest("figure").querySelector("details table tbody tr"))
      faults.push(`no table behind ${name(picture.closest("figure"))}`);
  return faults;
})()
