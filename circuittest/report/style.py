"""The style sheet of the page: light and dark by the reader's setting, narrow screens, and print."""

from __future__ import annotations

DRAWINGS = """
svg { display: block; overflow: visible; } figure.small > svg { max-width: 100%; height: auto; }
svg text { fill: var(--fore); font: 12px system-ui, sans-serif; } svg text.label { fill: var(--soft); }
.axis { stroke: var(--soft); stroke-width: 1; } .rule { stroke: var(--line); stroke-width: 1; }
.interval { stroke: var(--fore); stroke-width: 2; } .open { stroke: var(--fore); stroke-width: 2; fill: none; }
.value { fill: var(--fore); } .threshold { stroke: var(--above); stroke-width: 2; stroke-dasharray: 4 2; }
.claimed { fill: var(--claimed); }
.control { fill: var(--below); fill-opacity: .7; } .mark { stroke-width: 2; stroke: var(--fore); }
.mark-0 { stroke: var(--above); } .mark-1 { stroke-dasharray: 3 3; }
.curve { fill: none; stroke: var(--below); stroke-width: 2; }
.band { fill: var(--soft); fill-opacity: .25; } .middle { fill: none; stroke: var(--soft); stroke-dasharray: 2 3; }
.place { fill: var(--line); fill-opacity: .45; } .above { fill: var(--above); } .below { fill: var(--below); }
.member { stroke: var(--member); stroke-width: 2.5; } .family { fill: none; stroke: var(--member); stroke-width: 2.5; }
"""

STYLE = (
    """
:root { color-scheme: light dark; --back: #fff; --fore: #1b1f24; --soft: #57606a; --line: #d0d7de; --card: #f6f8fa;
  --focus: #0550ae; --link: #0550ae; --above: #b2182b; --below: #2166ac; --member: #1b1f24; --claimed: #dbe9f9;
  --supported: #116329; --refuted: #a40e26; --undecided: #7a4e00; --invalid: #6e3ba8; --measured: #32607a; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12161b; --fore: #e6e9ed; --soft: #a3adb8; --line: #38414c; --card: #1a2027; --focus: #79b8ff;
    --link: #79b8ff; --above: #f0716f; --below: #6cb0f5; --member: #fff; --claimed: #203349;
    --supported: #6fd08c; --refuted: #ff8a80; --undecided: #e8b84a; --invalid: #c8a2f5; --measured: #8cc4e0; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--fore); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1.05rem; margin: 0; overflow-wrap: anywhere; }
p { max-width: 48rem; overflow-wrap: anywhere; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; border-radius: 2px; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--back); padding: .5rem; }
.soft { color: var(--soft); }
.verdict { font-weight: 600; white-space: nowrap; }
.supported { color: var(--supported); } .refuted { color: var(--refuted); } .undecided { color: var(--undecided); }
.invalid { color: var(--invalid); } .measured { color: var(--measured); }
.counts { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; padding: 0; list-style: none; font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .5rem; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line);
  vertical-align: middle; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 400; overflow-wrap: anywhere; }
.claims td { white-space: nowrap; } .claims td.verdict-cell { white-space: normal; }
article { border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; margin: 1rem 0; background: var(--card); }
article > header { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: baseline; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: .75rem 0; }
dl > div { max-width: 100%; } dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22.5rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .75rem; background: var(--back); border: 1px solid var(--line); border-radius: .4rem;
  min-width: 0; }
figure.wide { grid-column: 1 / -1; width: fit-content; max-width: 100%; }
figcaption { font-size: .9rem; color: var(--soft); margin-top: .5rem; }
h4 { font-size: 1rem; margin: .75rem 0 .25rem; } .against { margin: .75rem 0; } .against p { margin: .25rem 0; }
.against td, .against th { vertical-align: top; font-size: .9rem; } .against td:nth-child(3) { min-width: 16rem; }
.scroll { overflow-x: auto; max-width: 100%; }
details { margin-top: .5rem; } summary { cursor: pointer; color: var(--link); }
"""
    + DRAWINGS
    + """
@media (max-width: 52rem) {
  .claims, .claims tbody { display: block; }
  .claims thead, .claims caption { position: absolute; clip-path: inset(50%); width: 1px; height: 1px;
    overflow: hidden; }
  .claims tr { display: grid; grid-template-columns: 6rem 1fr; padding: .75rem 0;
    border-bottom: 1px solid var(--line); }
  .claims th { grid-column: 1 / -1; font-weight: 600; border: 0; padding: 0 0 .25rem; }
  .claims td { display: contents; white-space: normal; }
  .claims td::before { content: attr(data-name); color: var(--soft); }
  .claims td > * { min-width: 0; overflow-wrap: anywhere; }
  .claims td.none { display: none; }
}
@media print { article { break-inside: avoid; } .skip { display: none; } }
"""
)

#: Of a cell of a notebook, whose own theme is light or dark: the words take its colour, the drawings suit both.
NOTEBOOK = (
    """
.circuittest { --fore: currentColor; --soft: currentColor; --line: #88888866; --above: #d6434f; --below: #3f8fd9;
  --member: currentColor; --claimed: #3f8fd933; --back: transparent;
"""
    + DRAWINGS
    + """
  figure { margin: .5rem 0; } .verdict { font-weight: 600; } .scroll { overflow-x: auto; }
  table { font-variant-numeric: tabular-nums; }
}
"""
)
