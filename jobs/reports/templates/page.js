"use strict";
for (const t of document.querySelectorAll("time[datetime]")) {
  const d = new Date(t.getAttribute("datetime"));
  if (isNaN(d) || d.getTimezoneOffset() === 0) continue;
  const s = document.createElement("span");
  s.className = "local";
  s.textContent = " (" + d.toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", timeZoneName: "short"}) + ")";
  t.append(s);
}
const box = document.getElementById("search");
if (box) {
  const rows = Array.from(document.querySelectorAll("#jobs tbody tr"), r => [r, (r.textContent + " " + r.dataset.more).toLowerCase()]);
  const said = document.getElementById("found");
  const state = document.getElementById("state");
  const sift = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let n = 0;
    for (const [r, text] of rows) {
      const ok = words.every(w => text.includes(w)) && (!state.value || r.dataset.state === state.value);
      r.hidden = !ok;
      if (ok) n++;
    }
    said.textContent = n.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " jobs";
    history.replaceState(null, "", box.value ? "#q=" + encodeURIComponent(box.value) : location.pathname + location.search);
  };
  document.getElementById("sift").hidden = false;
  if (location.hash.startsWith("#q=")) box.value = decodeURIComponent(location.hash.slice(3));
  box.addEventListener("input", sift);
  state.addEventListener("change", sift);
  sift();
}
