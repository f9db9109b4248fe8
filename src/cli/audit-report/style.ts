/** Of the page of `svc audit report --html`: light and dark as the reader has it, and light on paper. */
export const style = `
:root { color-scheme: light dark; --back: #f4f5f7; --card: #fff; --text: #1b1f24; --faint: #57606a; --line: #d5d9de; --mark: #0b57c2 }
@media (prefers-color-scheme: dark) { :root { --back: #101418; --card: #191e24; --text: #e7ebef; --faint: #a3adb8; --line: #333b44; --mark: #8ab8ff } }
* { box-sizing: border-box }
body { margin: 0; padding: 1.5rem 1rem; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
main { max-width: 76rem; margin: 0 auto }
h1 { margin: 0 0 .75rem; font-size: 1.6rem } h2 { margin: 0 0 .6rem; font-size: 1rem }
.about { margin: 0 0 1rem } .about div { display: flex; gap: .75rem } dt { flex: 0 0 4rem; color: var(--faint) } dd { margin: 0 }
.cards { columns: 20rem 3; column-gap: 1rem; margin-bottom: 1rem } .cards :last-child { margin-bottom: 0 }
section { padding: 1rem 1.25rem; background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin-bottom: 1rem; break-inside: avoid }
svg { display: block; width: 100%; max-width: 34rem; height: auto }
.figures { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0; padding: 0; list-style: none } .figures b { font-size: 1.4rem }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) } th { color: var(--faint); font-weight: 600 }
.scroll { overflow-x: auto } .scroll table { width: 100%; overflow-wrap: normal } .scroll td:first-child { white-space: nowrap }
summary { margin-top: .5rem; color: var(--mark); font-size: .875rem; cursor: pointer }
@media print { :root { color-scheme: light; --back: #fff; --card: #fff; --text: #000; --faint: #444; --line: #bbb; --mark: #0b57c2 } body { padding: 0; font-size: 12px } section { border-radius: 0 } details { display: none } svg * { print-color-adjust: exact } }
`
